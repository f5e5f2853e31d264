"""How an answer leaves: as the table a person reads, or as data for a program.

JSON is what the cell wrote, key for key, so that a program sees keys this version does not know yet.
Errors go to standard error, and with `-o json` (or jsonl, yaml) they are one JSON object a line. A
reader that went away (`| head`) is not an error.
"""

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from fairlease.cli.exits import CommandError
from fairlease.cli.table import Style, printable

if TYPE_CHECKING:
    from fairlease_schemas.job import Advice

_PLAIN_WIDTH: Final = 1_000_000
_HIDDEN: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Controls that JSON does not escape by itself, and marks that turn text round."""
_DATA: Final = frozenset(("json", "jsonl", "yaml"))


class Output(NamedTuple):
    """The chosen form, and what the terminal can show."""

    form: str
    is_quiet: bool
    style: Style

    @property
    def is_data(self) -> bool:
        """Whether a program reads: then standard error carries JSON too."""
        return self.form in _DATA


def output_of(args: argparse.Namespace) -> Output:
    """The output these arguments ask for, on this terminal."""
    form = getattr(args, "output", "table")
    return Output(form, getattr(args, "quiet", False), style_of(sys.stdout, is_wide=form == "wide"))


def style_of(stream: TextIO, *, is_wide: bool = False) -> Style:
    """What a stream can show: its width where it is a terminal, and colour unless NO_COLOR or `dumb` forbid it."""
    is_terminal = stream.isatty()
    can_color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if is_terminal and not is_wide else _PLAIN_WIDTH
    return Style(width=width, has_color=can_color, is_wide=is_wide)


def print_data(form: str, raw: bytes, names: Iterable[str]) -> None:
    """Print a view as data: json, jsonl (a line for each row, each with its place in the log), yaml, or its names."""
    if form == "name":
        print_text("".join(f"{name}\n" for name in dict.fromkeys(names)))
        return
    import msgspec

    if form == "json":
        print_text(_escaped(msgspec.json.format(raw, indent=2).decode()) + "\n")
        return
    view = msgspec.json.decode(raw)
    if form == "yaml":
        print_text(_yaml(view))
        return
    rows = view.get("rows") if isinstance(view, dict) else None
    lines = [view] if rows is None else [{**row, "as_of": view.get("as_of")} for row in rows]
    print_text(_escaped("".join(msgspec.json.encode(line).decode() + "\n" for line in lines)))


def _yaml(view: object) -> str:
    import io

    import msgspec
    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # its stub infers None from the default
    # Marks of direction print as they are otherwise; a view that has one is all escapes, and the same to a program.
    writer.allow_unicode = _HIDDEN.search(msgspec.json.encode(view).decode()) is None
    text = io.StringIO()
    writer.dump(view, text)
    return text.getvalue()


def print_text(text: str) -> None:
    """Write to standard output and flush: what a follower reads must not wait in a buffer."""
    sys.stdout.write(text)
    sys.stdout.flush()


def say(output: Output, text: str, facts: dict[str, Any]) -> None:
    """Progress, on standard error: a sentence, or the facts as a JSON line. `--quiet` is silent."""
    if not output.is_quiet:
        tell(output, text, facts)


def tell(output: Output, text: str, facts: dict[str, Any]) -> None:
    """What must be known even with `--quiet`, on standard error: a sentence, or the facts as a JSON line."""
    line = _escaped(json.dumps(facts, ensure_ascii=False)) if output.is_data else text
    print(line, file=sys.stderr, flush=True)


def say_advice(output: Output, advice: "Advice | None") -> None:
    """What could be done better, on standard error."""
    if advice is not None:
        field, text, rule = (printable(word) for word in (advice.field, advice.text, advice.rule))
        facts = {"kind": "Advice", "field": advice.field, "rule": advice.rule, "text": advice.text}
        say(output, f"advice: {field}: {text} (rule {rule})", facts)


def report(error: CommandError, *, is_data: bool) -> None:
    """Say on standard error how a command ended: in words with a finding a line, or as one JSON object."""
    if is_data:
        print(_escaped(json.dumps(_as_data(error), ensure_ascii=False)), file=sys.stderr, flush=True)
        return
    lines = [f"fairlease: {error.text}"]
    lines += [f"  {finding.sentence()}" for finding in error.findings]
    if error.way_out:
        lines.append(f"  {error.way_out}")
    # A file's name may hold anything, and a line of it must not pass for one of ours.
    print("\n".join(map(printable, lines)), file=sys.stderr, flush=True)


def refused(error: OSError) -> str:
    """What the machine refused, and of which file where it says so."""
    return f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror or error)


def _escaped(text: str) -> str:
    """JSON in which what a terminal obeys is written as JSON writes it: letter for letter the same to a program."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _as_data(error: CommandError) -> dict[str, Any]:
    findings = [
        {key: value for key, value in finding._asdict().items() if value not in ("", 0)} for finding in error.findings
    ]
    data = {
        "apiVersion": "fairlease/v1",
        "kind": "Error",
        "exit_code": error.code,
        "text": error.text,
        "way_out": error.way_out,
        "problems": findings,
        **error.facts,
    }
    return {key: value for key, value in data.items() if value not in ("", [])}


def wants_data(argv: Sequence[str]) -> bool:
    """Whether these words ask for data, also where they are too wrong to be parsed."""
    words = list(argv)
    words = words[: words.index("--")] if "--" in words else words
    asked = [after for word, after in zip(words, [*words[1:], ""], strict=True) if word in ("-o", "--output")]
    asked += [word.partition("=")[2] for word in words if word.startswith("--output=")]
    asked += [word[2:] for word in words if word.startswith("-o") and len(word) > 2]
    return "--json" in words or any(word in _DATA for word in asked)
