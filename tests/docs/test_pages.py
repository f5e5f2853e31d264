"""No block of a page is left out: each is typed, parsed, compiled, or held against what it claims to be.

What stands in a fence is believed and copied. So a fence in a language that nobody checks here is a finding, and so is
an exception below that nothing needs any more. Sessions with a cell are typed by test_sessions.py; commands and links
in running text are tests/contract's.
"""

import ast
import builtins
import hashlib
import importlib
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from fairlease.agent import identity
from fairlease.cli.document import read_document
from fairlease.cli.exits import CommandError
from fairlease.cli.parser import parse
from fairlease.cli.verbs import build
from fairlease.runtime.spans import trace_id
from fairlease.simulator.comparison import Limit, figures_of
from fairlease.simulator.runs import simulate_lab
from fairlease.simulator.workload_file import BASED_ON, LAB_1024, WorkloadWrong, scenario_of
from fairlease_schemas.codec import Unreadable, canonical, understood
from fairlease_schemas.contract import body, read_contract, scheduling_fields
from fairlease_schemas.generate import json_schemas
from fairlease_schemas.job import Problem, Request
from fairlease_schemas.units import HOUR_MS
from tests.contract.test_docs import pages
from tests.contract.test_generated import accepts
from tests.docs.mistakes import told
from tests.docs.session import INTERRUPT, NOT_RUN, SESSIONS, Fence, Names, Typed, commands, fences
from tests.house.tree import ROOT, at, report, write

PROGRAMS: Final = {
    "docker": "a container engine is nothing of ours; the file is held against compose's schema (tests/services)",
    "kubectl": "a cluster is nothing of ours; the manifests are held against their schemas (tests/services)",
    "sudo": "in front of docker's files alone",
}
"""Programs of shell blocks that no test starts, and why; all others are ours, the Makefile's or the shell's."""
DRAWINGS: Final = {"ARCHITECTURE.md": "the map"}
"""Pages with one block that is a drawing, and what it is."""
FRAGMENTS: Final = {"STYLE.md": "how code is written: names stand for any, so that it is compiled and not run"}
"""Pages whose Python is no program."""
TRAINING: Final = {"path": "weights.bin", "step": 100, "loss": 0.5}
"""What a script around the training snippet has by then."""

Check = Callable[[Fence, Path], Iterator[str]]


def blocks(root: Path) -> Iterator[tuple[Path, Fence]]:
    """Every fence of every page."""
    for page in pages(root):
        for fence in fences(page):
            yield page, fence


def name_of(page: Path, root: Path = ROOT) -> str:
    return page.relative_to(root).as_posix()


def findings(root: Path) -> list[str]:
    """What is wrong with the blocks of a tree's pages, with their place."""
    found = []
    for page, fence in blocks(root):
        check = CHECKS.get(fence.language)
        told = [f"nobody checks {fence.language!r} blocks"] if check is None else check(fence, page.relative_to(root))
        found += [f"{at(root, page, fence.line)}: {text}" for text in told]
    return found


# shell -----------------------------------------------------------------------------------------------------------
def _shell(fence: Fence, _page: Path) -> Iterator[str]:
    """As bash reads it; each program known, and our own words taken by the real parser."""
    yield from _bash(fence.body)
    yield from _programs(fence.body)


def _session(fence: Fence, page: Path) -> Iterator[str]:
    """Typed by test_sessions, or by itself with what it prints; none is left out by its mark."""
    if fence.mark.startswith(NOT_RUN):
        yield f"is left out: {fence.mark}"
    for one in commands(fence):
        yield from _bash(one.command)
        yield from _programs(one.command)
        if page.as_posix() not in SESSIONS:
            yield from _typed_alone(one)


def _bash(script: str) -> Iterator[str]:
    """Whether it is a script at all; `^C` is a key."""
    if script != INTERRUPT:
        read = subprocess.run(["/bin/bash", "-n"], input=script, text=True, capture_output=True, check=False)
        if read.returncode:
            yield f"bash does not read it: {read.stderr.strip()}"


def _programs(script: str) -> Iterator[str]:
    for words in _simple_commands(script):
        program = words[0]
        if program == "fairlease":
            try:
                parse(words[1:], build())
            except CommandError as error:
                yield f"{shlex.join(words)}: {error.text}"
        elif program == "make":
            known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            yield from (f"no verb of the Makefile: {word}" for word in words[1:2] if word not in known)
        elif program not in SHELL and program not in PROGRAMS:
            yield f"{program}: is neither ours nor the shell's, and PROGRAMS does not say why nobody starts it"


SHELL: Final = frozenset(
    (
        ".",
        INTERRUPT,
        "basename",
        "cut",
        "do",
        "done",
        "echo",
        "export",
        "for",
        "kill",
        "ls",
        "mv",
        "printf",
        "sed",
        "sha256sum",
    )
)


def _simple_commands(script: str) -> Iterator[list[str]]:
    """The words of each command: of lines, of pipes and of what is substituted; assignments before them are dropped."""
    outer, inner = _without_substitutions(script.replace("\\\n", " "))
    for one in inner:
        yield from _simple_commands(one)
    for line in outer.splitlines():
        words: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
        lexer.whitespace_split = True
        for word in [*lexer, ";"]:
            if not set(word) <= set(";|&"):
                words.append(word)
                continue
            while words and re.match(r"[A-Za-z_]+=", words[0]):
                del words[0]
            if words:
                yield words
            words = []


def _without_substitutions(script: str) -> tuple[str, list[str]]:
    """The script with a word in the place of each `$(…)`, and what stood in these; brackets in '' are letters."""
    outer, inner, depth, is_quoted = "", [""], 0, False
    at_char = 0
    while at_char < len(script):
        char = script[at_char]
        if not is_quoted and script.startswith("$(", at_char):
            depth += 1
            outer += "SUBSTITUTED" if depth == 1 else ""
            inner.append("")
            at_char += 2
            continue
        is_quoted ^= depth > 0 and char == "'"
        if depth and char == ")" and not is_quoted:
            depth -= 1
        elif depth:
            inner[-1] += char
        else:
            outer += char
        at_char += 1
    return outer, [one for one in inner if one]


def _scripts(fence: Fence) -> list[str]:
    """What of a block is typed."""
    return [one.command for one in commands(fence)] if fence.language == "console" else [fence.body]


def _typed_alone(one: Typed) -> Iterator[str]:
    """Of pages without a cell: run as it is, and compared with what the page shows."""
    done = subprocess.run(["/bin/bash", "-c", one.command], text=True, capture_output=True, check=False, timeout=60)
    if done.returncode or not Names().agrees(one.printed, done.stdout):
        yield f"$ {one.command} ended with {done.returncode} and printed {done.stdout!r}{done.stderr}"


# programs --------------------------------------------------------------------------------------------------------
def _python(fence: Fence, page: Path) -> Iterator[str]:
    """It compiles; its imports are there and have what is taken of them; and it runs, unless its page has fragments."""
    try:
        tree = ast.parse(fence.body)
    except SyntaxError as error:
        yield f"is no Python: {error}"
        return
    modules: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name] = importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            yield from (f"{node.module} has no {alias.name}" for alias in node.names if not hasattr(module, alias.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                yield f"{node.value.id} has no {node.attr}"
    if page.as_posix() not in FRAGMENTS:
        yield from (
            f"{name}: nothing says what that is" for name in sorted(_unknown(tree) - TRAINING.keys() - {"save"})
        )


def _unknown(tree: ast.Module) -> set[str]:
    """Names that a program uses and neither makes, imports nor finds in Python."""
    used, made = set[str](), set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                made.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.alias():
                made.add(node.asname or node.name.partition(".")[0])
            case _:
                pass
    return used - made


# data ------------------------------------------------------------------------------------------------------------
def _json(fence: Fence, page: Path) -> Iterator[str]:
    """Each line is of one of the shapes that its page is about."""
    shapes = SHAPES.get(page.as_posix(), ())
    if not shapes:
        yield "no shape is known for the JSON of this page: add it to SHAPES"
    for line in fence.body.splitlines():
        try:
            value = json.loads(line)
        except ValueError as error:
            yield f"is no JSON: {error}"
        else:
            if shapes and not any(is_one(value) for is_one in shapes):
                yield f"is of none of its page's shapes: {line[:80]}"


def _is_of(kind: type) -> Callable[[Any], bool]:
    def is_one(value: Any) -> bool:  # noqa: ANN401 - any JSON
        try:
            return bool(canonical(understood(json.dumps(value).encode(), kind)) == canonical_text(value))
        except Unreadable:
            return False

    return is_one


def canonical_text(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """The same value as the canonical bytes have it."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _is_schema(name: str) -> Callable[[Any], bool]:
    schema = json_schemas()[name]
    return lambda value: accepts(schema, value)


def _first_contract() -> Any:  # noqa: ANN401 - the model of a contract
    first = next(fence for fence in fences(ROOT / "docs/contract.md") if fence.language == "yaml")
    return read_contract(read_document(first.body.encode()).data)[0]


def _is_body(value: Any) -> bool:  # noqa: ANN401 - any JSON
    return bool(value == body(_first_contract()))


SHAPES: Final[dict[str, tuple[Callable[[Any], bool], ...]]] = {
    "docs/events.md": (_is_schema("events.schema.json"), _is_schema("record.schema.json")),
    "docs/contract.md": (_is_of(Problem), _is_of(Request), _is_body),
}


def _yaml(fence: Fence, page: Path) -> Iterator[str]:
    """A contract; or one that is refused, with exactly the problems that the next block shows."""
    problems = read_contract(read_document(fence.body.encode()).data)[1]
    told = [line for line in _behind(page, fence).splitlines() if '"field"' in line]
    if [canonical(problem).decode() for problem in problems] != told:
        yield f"is a contract with the problems {[canonical(problem).decode() for problem in problems]}"


def _behind(page: Path, fence: Fence) -> str:
    """The body of the block behind this one, where it is JSON."""
    known = fences(ROOT / page) if (ROOT / page).exists() else []
    behind = [one for one in known if one.line > fence.line][:1]
    return behind[0].body if behind and behind[0].language == "json" else ""


def _plain(fence: Fence, page: Path) -> Iterator[str]:
    """A drawing, or the file that maps users."""
    if page.as_posix() in DRAWINGS:
        return
    if not fence.body.startswith("# account  user\n"):
        yield "says no language, so nobody knows what it is"
        return
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:  # whose the file is, is not the page's matter
        patched.setattr(identity, "_believed", lambda _path: fence.body)
        try:
            identity.Users(Path("users")).check()
        except Exception as error:  # noqa: BLE001 - whatever it says of the page is the finding
            yield str(error)


def _toml(fence: Fence, _page: Path) -> Iterator[str]:
    """What is different from a workload, or limits of a comparison, each of a figure that a report has."""
    try:
        plain = tomllib.loads(fence.body)
        if plain.pop(BASED_ON, None) == LAB_1024:
            yield from _workload(plain)
            return
        limits = msgspec.convert(plain, dict[str, Limit])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        yield f"is no file for --must: {error}"
    else:
        yield from (f"no report has a figure {name}" for name in limits if name not in _figures())


def _workload(over: dict[str, Any]) -> Iterator[str]:
    try:
        scenario_of(None, over)
    except WorkloadWrong as error:
        yield str(error)


@cache
def _figures() -> frozenset[str]:
    report = simulate_lab(policy="budget-window", seed=1, hosts=1, measured_ms=HOUR_MS // 4, warm_up_ms=1)
    return frozenset(figures_of(report))


def _told(fence: Fence, _page: Path) -> Iterator[str]:
    """What the code says of a file with such mistakes, line by line."""
    yield from (f"nothing says: {line}" for line in fence.body.splitlines() if line not in told())


CHECKS: Final[dict[str, Check]] = {
    "sh": _shell,
    "console": _session,
    "python": _python,
    "json": _json,
    "yaml": _yaml,
    "toml": _toml,
    "text": _told,
    "": _plain,
}


# the tests -------------------------------------------------------------------------------------------------------
def test_every_block_is_what_it_claims_to_be() -> None:
    report(findings(ROOT))


def test_no_block_is_overlooked() -> None:
    missed = []
    for page in pages(ROOT):
        text = page.read_text(encoding="utf-8")
        marks = len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE))
        if marks != 2 * len(fences(page)):
            missed.append(f"{at(ROOT, page)}: {marks} fence lines, and {len(fences(page))} blocks are read")
    report(missed)


def test_every_exception_is_needed() -> None:
    named = {name_of(page) for page, _ in blocks(ROOT)}
    used = {
        words[0]
        for _, fence in blocks(ROOT)
        if fence.language in ("sh", "console")
        for script in _scripts(fence)
        for words in _simple_commands(script)
    }
    assert used >= PROGRAMS.keys()
    drawn = [name_of(page) for page, fence in blocks(ROOT) if not fence.language and not fence.body.startswith("#")]
    assert drawn == list(DRAWINGS)
    assert named >= {*FRAGMENTS, *SHAPES, *SESSIONS}


def test_the_training_snippet_runs_as_it_stands_outside_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = [
        fence for page, fence in blocks(ROOT) if fence.language == "python" and name_of(page) == "docs/cli.md"
    ]
    monkeypatch.chdir(tmp_path)
    around = {**TRAINING, "save": lambda path: Path(path).write_bytes(b"w")}
    exec(compile(snippet.body, "docs/cli.md", "exec"), around)
    assert list(tmp_path.iterdir()), "it saved nothing and said nothing"


def test_the_page_on_traces_says_how_the_code_makes_their_ids() -> None:
    (block,) = [
        fence for page, fence in blocks(ROOT) if name_of(page) == "docs/seeing.md" and fence.language == "console"
    ]
    (one,) = commands(block)
    job = re.search(r"job-[a-z2-7]{20}", one.command)
    assert job is not None
    assert one.printed.strip() == trace_id(job[0])


def test_the_digest_on_the_page_is_the_bodys() -> None:
    text = (ROOT / "docs/contract.md").read_text(encoding="utf-8")
    assert hashlib.sha256(canonical_text(body(_first_contract()))).hexdigest() in text
    assert canonical(scheduling_fields(_first_contract())).decode() in text


# the rules of this file, failing ---------------------------------------------------------------------------------
WRONG: Final = {
    "a language nobody knows": "```cobol\nSTOP RUN.\n```",
    "limits that are none": '```toml\n"fulfilment.mean" = { lowest = 0.9 }\n```',
    "limits of a figure that there is not": '```toml\n"fulfilment.average" = { least = 0.9 }\n```',
    "a workload that is none": '```toml\nbased_on = "lab-1024"\ncluster.hosts = 0\n```',
    "what nobody is told": "```text\ntrace.csv: row 7: is no good\n```",
    "a script that is none": "```sh\nfor x in; do\n```",
    "a command that does not exist": "```sh\nexport A=1 | FAIRLEASE_HOME=x fairlease fly\n```",
    "a command inside another": '```console\n$ kill "$(fairlease fly | cut -c1)"\n```',
    "a program of others": "```sh\nhelm install # it\n```",
    "a session left out": "<!-- not run: too long -->\n```console\n$ echo a\na\n```",
    "another output": "```console\n$ echo a\nb\n```",
    "Python that does not compile": "```python\ndef f(:\n```",
    "a name that is not imported": "```python\nimport fairlease_sdk as f\nf.fly()\nunknown()\n```",
    "JSON of no known shape": '```json\n{"a": 1}\n```',
    "a contract with a problem": "```yaml\napiVersion: fairlease/v1\nkind: Job\nspec: {}\n```",
    "a block without a language": "```\nfree text\n```",
    "a users file that is none": "```\n# account  user\nann\n```",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_block_that_is_not_what_it_claims_is_found(tmp_path: Path, text: str) -> None:
    write(tmp_path, "docs/page.md", f"# A\n\n{text}\n")
    assert findings(tmp_path)


def test_good_blocks_are_no_findings(tmp_path: Path) -> None:
    good = "```sh\nA=1 fairlease queue --limit 3 | cut -c1 # some\nmake demo\n```\n\n```console\n$ echo a\na\n```\n"
    write(tmp_path, "docs/page.md", good)
    assert findings(tmp_path) == []
