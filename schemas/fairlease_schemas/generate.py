"""What others build on, written from the code: JSON Schemas, the event catalogue, the contract reference.

`python -m fairlease_schemas.generate` writes `schemas/json/`, `docs/events.md` and `docs/contract.md`;
with `--check` it writes nothing and exits 1, naming each file that is not what the code says. The
examples on the pages are those of example.py.
"""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from msgspec import inspect

from fairlease_schemas import codec, commands, comparison, explain, orders, reports, robustness, series
from fairlease_schemas.contract import Contract, Spec, body, read_contract, scheduling_fields
from fairlease_schemas.envelope import Event, Record, Said
from fairlease_schemas.example import (
    CONTRACT,
    DEBUG,
    IDLE,
    REFUSED,
    SWEEP,
    TRAINING,
    WHOLE,
    Entry,
    contract_of,
    entries,
    example_record,
    tag_of,
)
from fairlease_schemas.ids import NAME_PATTERN
from fairlease_schemas.policy import Policy
from fairlease_schemas.subjects import SCOPES
from fairlease_schemas.terms import LENGTH_PATTERN, MEMORY_PATTERN
from fairlease_schemas.units import format_length

COMMAND: Final = "python -m fairlease_schemas.generate"
ROOT: Final = Path(__file__).resolve().parents[2]
REPLAYS: Final = "Replaying this log reproduces the state."
_NOTE: Final = f"<!-- Written by `{COMMAND}` (`make docs`); edits are lost. -->\n"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

# --- JSON Schemas ------------------------------------------------------------------------------------


def _family(title: str, types: Sequence[Any], *, is_named_by_subject: bool = False) -> dict[str, Any]:
    """The schema of a family of messages: any of the types, each under its own name in `$defs`.

    A body whose subject names its type may leave the tag out, so there it is not required.
    """
    schemas, defs = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for one in types if is_named_by_subject else ():
        defs[one.__name__]["required"].remove("type")
    top = dict(schemas[0]) if len(schemas) == 1 else {"anyOf": list(schemas)}
    return {"$schema": _DRAFT, "title": title, **top, "$defs": dict(sorted(defs.items()))}


def contract_schema() -> dict[str, Any]:
    """The contract as people write it: lengths and sizes are text with units, names carry their patterns."""
    schema = Contract.model_json_schema()
    grace = schema["$defs"]["Checkpoint"]["properties"]["grace"]
    grace["default"] = format_length(grace["default"])
    schema["$defs"]["Spec"]["properties"]["checkpoint"]["default"] = {"grace": grace["default"]}
    for name in ("env", "secrets", "labels"):
        schema["$defs"]["Spec"]["properties"][name]["additionalProperties"] = False
    schema["$defs"]["Constraints"]["properties"]["labels"]["additionalProperties"] = False
    return {"$schema": _DRAFT, **_untitled(schema)}


def _untitled(schema: Any) -> Any:  # noqa: ANN401 - a schema is plain JSON data
    """The schema without the titles that pydantic makes of field names: they say nothing."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}


def json_schemas() -> dict[str, dict[str, Any]]:
    """Every published schema by file name."""
    asked = _family("Fairlease commands", tuple(commands.VERBS.values()), is_named_by_subject=True)
    asked["$defs"]["SubmitJob"]["properties"]["contract"] = {"$ref": "contract.schema.json"}
    return {
        "contract.schema.json": contract_schema(),
        "events.schema.json": _family("Fairlease events", (Event,)),
        "record.schema.json": _family("Fairlease record of the log", (Record,)),
        "commands.schema.json": asked,
        "reports.schema.json": _family("Fairlease reports", tuple(reports.KINDS.values()), is_named_by_subject=True),
        "orders.schema.json": _family("Fairlease host order", (orders.HostOrder,)),
        "views.schema.json": _family("Fairlease views", (explain.Reply,)),
        "comparison.schema.json": _family("Fairlease comparisons", (comparison.KINDS,)),
        "robustness.schema.json": _family("Fairlease robustness", (robustness.Robustness,)),
        "series.schema.json": _family("Fairlease series of a simulation", (series.Series,)),
    }


# --- Markdown ------------------------------------------------------------------------------------------


def canonical_line(message: Event) -> str:
    """An event as it stands in a record; an assertion fails when reading it back gives another."""
    line = codec.canonical(message)
    assert msgspec.json.decode(line, type=Event) == message
    return line.decode()


def _prose(text: str | None) -> str:
    """A docstring as one paragraph per blank line."""
    paragraphs = re.split(r"\n\s*\n", text or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _type_name(kind: inspect.Type) -> str:
    """A type in words; structs link to their own section."""
    match kind:
        case inspect.IntType():
            return "integer"
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.EnumType(cls=cls):
            return "one of " + ", ".join(f"`{member.value}`" for member in cls)
        case inspect.StructType(cls=cls):
            tag = tag_of(cls)
            return f"`{tag}`" if tag else f"[{cls.__name__}](#{cls.__name__.lower()})"
        case inspect.VarTupleType(item_type=item):
            return f"list of {_type_name(item)}"
        case inspect.DictType(value_type=value):
            return f"{_type_name(value)} by name"
        case inspect.UnionType(types=types) if len(types) > 8:
            return "any of these"
        case inspect.UnionType(types=types):
            return " or ".join(_type_name(one) for one in types)
        case _:
            raise AssertionError(f"no words for {kind}")


def _struct_table(cls: type[Any]) -> list[str]:
    """One row a field; a field without a default is required."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    rows = ["| field | type | default |", "|---|---|---|"]
    for field in info.fields:
        default = "required" if field.required else f"`{_default(field)}`"
        rows.append(f"| `{field.encode_name}` | {_type_name(field.type)} | {default} |")
    return [*rows, ""] if info.fields else ["No fields.", ""]


def _default(field: inspect.Field) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return codec.canonical(msgspec.to_builtins(value)).decode()


def _values_in(kinds: Iterable[type[Any]]) -> list[type[Any]]:
    """Structs without a tag that these types hold, directly or deeper, by name."""
    found: dict[str, type[Any]] = {}

    def walk(kind: inspect.Type) -> None:
        match kind:
            case inspect.StructType(cls=cls, fields=fields):
                if not tag_of(cls):
                    found[cls.__name__] = cls
                for field in fields:
                    walk(field.type)
            case inspect.VarTupleType(item_type=item):
                walk(item)
            case inspect.UnionType(types=types):
                for one in types:
                    walk(one)
            case _:
                pass

    for cls in kinds:
        walk(inspect.type_info(cls))
    return [found[name] for name in sorted(found)]


def _by_line(entry: Entry) -> str:
    """Who writes it, with the scope: `admission (scope intake)`."""
    scopes: dict[str, list[str]] = {}
    for service in entry.by:
        scopes.setdefault(SCOPES[service], []).append(f"**{service}**")
    return ", ".join(f"{' or '.join(services)} (scope `{scope}`)" for scope, services in scopes.items())


def _fenced(language: str, *lines: str) -> list[str]:
    return [f"```{language}", *lines, "```", ""]


def _event_section(entry: Entry) -> list[str]:
    heading = [f"### {tag_of(entry.cls)}", "", f"Written by {_by_line(entry)}. {_prose(entry.cls.__doc__)}", ""]
    example = _fenced("json", canonical_line(entry.example))
    return [*heading, *_struct_table(entry.cls), *example, f"The fold: {entry.fold} {REPLAYS}", ""]


def _struct_section(cls: type[Any]) -> list[str]:
    listed = ["A list in this order.", ""] if cls.__struct_config__.array_like else []
    return [f"### {tag_of(cls) or cls.__name__}", "", _prose(cls.__doc__), "", *listed, *_struct_table(cls)]


def events_page() -> str:
    """docs/events.md."""
    lines = [_NOTE, "# Event catalogue", "", _EVENTS_INTRO, "## The record", "", _prose(Record.__doc__), ""]
    lines += [*_struct_table(Record), *_fenced("json", example_record().decode()), "## All events", ""]
    lines += ["| event | written by | says |", "|---|---|---|"]
    for entry in entries():
        says = re.split(r"\.\s", _prose(entry.cls.__doc__))[0].rstrip(".")
        lines.append(f"| [{tag_of(entry.cls)}](#{tag_of(entry.cls)}) | {', '.join(entry.by)} | {says} |")
    section = ""
    for entry in entries():
        if entry.section != section:
            section = entry.section
            lines += ["", f"## {section}", ""]
        lines += _event_section(entry)
    lines += ["## What a record answers", "", _ANSWERS_INTRO]
    for cls in get_args(Said):
        lines += _struct_section(cls)
    lines += ["## Values", "", "Parts of the messages above, in the order of their names.", ""]
    for cls in _values_in((Record,)):
        if cls is not Record:
            lines += _struct_section(cls)
    return "\n".join(lines).rstrip() + "\n"


_EVENTS_INTRO: Final = f"""\
Everything that ever happened in a cell is in its log, and the log holds nothing but these events. One message of the
log is one record, one record is one decision, and its events are atomic by being in one message. Records are canonical
JSON: sorted keys, integers and text only, no spaces; a field at its default is left out of an event.
{REPLAYS}

Instants and lengths end in `_ms` (milliseconds; instants since 1970), compute in `_gpu_ms` (GPU-milliseconds). Events
carry lengths, never ends: a length counts from the log time of the record that wrote it. Fields are only ever added,
with a default; a type, a tag or a meaning never changes. The same in JSON Schema:
[events](../schemas/json/events.schema.json), [record](../schemas/json/record.schema.json). Numbers in brackets, such as
2.4, are rules of [decisions.md](decisions.md).
"""
_ANSWERS_INTRO: Final = """\
`said` is the part of a message that the decision read, so that a replay needs no other stream. Of a contract that is
its scheduling fields and the digest of its body; of a message that nobody can read, its size and SHA-256.
"""

# --- the contract reference -------------------------------------------------------------------------------


TERMS: Final = {
    "budget": ("1.1", "The leaf of the budget tree that is charged; the submitter is a member of it, or of one above."),
    "hosts": ("1.2", "Hosts of the gang, granted together or not at all; more than one means whole hosts."),
    "gpus_per_host": ("1.2", "GPUs on each host; in a gang of several hosts, all that each has."),
    "cpu_per_host": ("1.2", "Cores on each host. Without it the GPUs' proportional part, as for memory and disk."),
    "memory_per_host": ("1.2", "Memory on each host."),
    "disk_per_host": ("1.2", "Disk on each host."),
    "pools": ("1.3", "Pools that will do, each once; without it every pool that could take the gang."),
    "constraints": ("1.3", "What every host must be; what no registered hosts could meet when empty is refused."),
    "constraints.gpu_model": ("1.3", "One of these, by whole words: `H100` takes `NVIDIA H100 80GB HBM3`."),
    "constraints.min_gpu_memory": ("1.3", "Memory of one GPU."),
    "constraints.labels": ("1.3", "Labels that the host has, with these values."),
    "constraints.same_block": ("1.3", "All hosts of the gang in one topology block."),
    "min_runtime": ("1.4", "The window: counted from the grant, nobody may preempt inside it. `0s` is idle work."),
    "timeout": ("1.5", "Wall limit of one attempt, counted from its grant; at least `1s`."),
    "on_timeout": ("1.5", "What the wall limit does to the job: `fail` ends it, `requeue` lets it wait again."),
    "resumable": ("1.6", "Whether an attempt can go on from a checkpoint. If not, its window is its timeout."),
    "checkpoint": ("1.7", "How an attempt saves itself, also when it is asked to stop."),
    "checkpoint.grace": ("1.7", "From the notice to the TERM to all; the kill follows within the stop margin."),
    "checkpoint.uri": ("1.7", "Where: `s3://`, `gs://`, `az://` or `store:NAME/PATH`; no user, password or `..`."),
    "checkpoint.interval": ("1.7", "How often it saves itself, at least `1s`: evictions may wait for it."),
    "checkpoint.signal": ("1.7", "Sent with the notice to who catches it; `none` leaves it to the notice file."),
    "max_retries": (
        "1.8",
        "Further attempts after the job's own failures; preemptions, faults and drains never count.",
    ),
    "state": ("1.9", "What a resumed run must match (8.3); the body keeps it, the log its digest."),
    "state.commit": ("1.9", "Code."),
    "state.data": ("1.9", "Fingerprint of the data."),
    "state.model": ("1.9", "Version of the model."),
    "state.runtime": ("1.9", "Image or runtime."),
    "state.world_size": ("1.9", "Ranks."),
    "state.rng": ("1.9", "State or seed of random numbers."),
    "lane": ("1.10", "`debug` asks for the debug lane."),
    "array": ("1.11", "Like jobs, each a job of its own with an index from 0; admitted whole, in one record."),
    "array.count": ("1.11", "How many."),
    "array.parallel": ("1.11", "How many of them compete or run at a time; without it all."),
    "after": ("1.11", "Jobs or arrays that must be over before this one competes."),
    "after.job": ("1.11", "Which: its id."),
    "after.when": ("1.11", "`ok`: it must have succeeded, or this job is cancelled; `any`: however it ended."),
    "evaluation": ("1.12", "The evaluation that the job belongs to, for its cost."),
    "labels": ("1.12", "For people and their programs; kept in the body."),
    "command": ("1.13", "The argument vector; no shell reads it. Required unless there is an image."),
    "image": ("1.13", "A container image, better with its digest."),
    "env": ("1.13", "Environment variables. A value or argument that looks like a key or token is refused."),
    "secrets": ("1.13", "Environment variables that hold a secret: its name, `secret:NAME`, never itself."),
    "source": ("1.13", "The code that runs, in the working directory: `repo` and `commit`, or `bundle`."),
    "source.repo": (
        "1.13",
        "A repository, `https://`, `ssh://` or `git@`, without a password; `file:///` where a site allows it.",
    ),
    "source.commit": ("1.13", "The whole id of the commit."),
    "source.bundle": (
        "1.13",
        "A bundle by its digest, as `fairlease bundle DIR` prints it; `submit --bundle DIR` writes it.",
    ),
    "terminal": ("1.17", "The job has a terminal, to attach to; only in the debug lane, on one host."),
    "start_limit": ("1.15", "How long the gang may take to start, `1s` to `1h`; without it what the policy says."),
}
"""Every field of a spec: its rule and its meaning."""


def _bounds(schema: dict[str, Any]) -> str:
    """A field's schema in words."""
    if "$ref" in schema:
        return "mapping"
    if "anyOf" in schema:
        return _bounds(schema["anyOf"][0])
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    match schema["type"]:
        case "integer":
            return f"integer, {schema['minimum']} to {schema['maximum']}"
        case "boolean":
            return "`true` or `false`"
        case "array":
            return f"list of {schema.get('minItems', 0)} to {schema['maxItems']}, each {_bounds(schema['items'])}"
        case "object":
            return f"up to {schema['maxProperties']} of name: {_bounds(*schema['patternProperties'].values())}"
        case _:
            named = {LENGTH_PATTERN: "length", MEMORY_PATTERN: "size", NAME_PATTERN: "name"}.get(
                str(schema.get("pattern"))
            )
            limit = f", up to {schema['maxLength']} characters" if "maxLength" in schema else ""
            return named or f"text{limit}"


def _term_rows() -> list[str]:
    schema = contract_schema()
    blocks = {"": schema["$defs"]["Spec"], **{name.lower(): block for name, block in schema["$defs"].items()}}
    assert {name for name in TERMS if "." not in name} == set(Spec.model_fields)
    rows = ["| field of `spec` | rule | value | default | meaning |", "|---|---|---|---|---|"]
    for name, (rule, says) in TERMS.items():
        parent, _, leaf = name.rpartition(".")
        block = blocks[parent]
        field = block["properties"][leaf]
        default = "required" if leaf in block.get("required", ()) else f"`{json.dumps(field.get('default'))}`"
        if default == "`null`":
            default = "none"
        rows.append(f"| `{name}` | {rule} | {_bounds(field)} | {default} | {says} |")
    return [*rows, ""]


def _policy_rows() -> list[str]:
    """What the default policy asks of a contract."""
    policy, rows = Policy(), ["| asked of | rule | limit under the default policy |", "|---|---|---|"]
    at_least = 1
    for bound in policy.window_bounds:
        upto = f"{at_least} to {bound.up_to_gpus} GPUs" if bound.up_to_gpus < 1 << 20 else f"{at_least} GPUs and more"
        shortest, longest = format_length(bound.shortest_ms), format_length(bound.longest_ms)
        rows.append(f"| `min_runtime` of {upto} | 1.4 | `0s`, or `{shortest}` to `{longest}` |")
        at_least = bound.up_to_gpus + 1
    cap, window = format_length(policy.non_resumable_cap_ms), format_length(policy.debug_max_window_ms)
    rows.append(f"| `timeout` when not resumable | 1.6 | up to `{cap}` |")
    rows.append(f"| `checkpoint.grace` | 1.7 | a longer one counts as `{format_length(policy.grace_cap_ms)}` |")
    rows.append(f"| `start_limit`, when not written | 1.15 | `{format_length(policy.start_limit_ms)}` |")
    rows.append(f"| GPUs in the debug lane | 3.1 | up to {policy.debug_max_gpus} |")
    rows.append(f"| `min_runtime` in the debug lane | 3.1 | above `0s`, up to `{window}` |")
    rows.append(f"| `timeout` in the debug lane | 3.1 | up to `{format_length(policy.debug_max_timeout_ms)}` |")
    return [*rows, ""]


def as_yaml(data: dict[str, Any], indent: str = "") -> list[str]:
    """Plain data as block YAML; lists and text that could be mistaken are written as JSON, which YAML contains."""
    lines = []
    for key, value in data.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *as_yaml(value, indent + "  ")]
        else:
            is_plain = isinstance(value, str) and re.fullmatch(r"[a-zA-Z0-9][\w./-]*", value) and not value.isdigit()
            lines.append(f"{indent}{key}: {value if is_plain else json.dumps(value)}")
    return lines


def _example(title: str, says: str, data: dict[str, Any]) -> list[str]:
    contract_of(data)
    return [f"### {title}", "", says, "", *_fenced("yaml", *as_yaml(data))]


def contract_page() -> str:
    """docs/contract.md."""
    problems = read_contract(REFUSED)[1]
    assert problems
    lines = [_NOTE, "# The job contract", "", _CONTRACT_INTRO, *_fenced("yaml", *as_yaml(TRAINING))]
    lines += ["## Fields", "", _FIELDS_INTRO, *_term_rows(), _VALUES_SAY]
    lines += ["## What the cell asks", "", _CELL_SAYS, *_policy_rows(), "## More examples", ""]
    lines += _example("Idle work", "No window: charged to nobody, preemptible at once, runs on what is free.", IDLE)
    lines += _example("The debug lane", "Ranked first while the lane has room, for a short look at something.", DEBUG)
    lines += _example(
        "Not resumable", "Cannot be time-sliced: its window is its whole timeout, which is capped.", WHOLE
    )
    lines += _example("An array", "With nearly everything a contract can say.", SWEEP)
    lines += ["## When it is no contract", "", _PROBLEMS_SAY, *_fenced("yaml", *as_yaml(REFUSED))]
    lines += _fenced("json", *(codec.canonical(problem).decode() for problem in problems))
    lines += ["## Body and digest", "", _BODY_SAYS, *_fenced("json", codec.canonical(body(CONTRACT)).decode())]
    lines += [f"Its digest is `{codec.digest(body(CONTRACT))}`.", ""]
    lines += ["What a decision reads of it is a [Request](events.md#request):", ""]
    lines += [*_fenced("json", codec.canonical(scheduling_fields(CONTRACT)).decode()), _ABSENT]
    return "\n".join(lines).rstrip() + "\n"


_CONTRACT_INTRO: Final = """\
What a submitter promises, and is promised. Written in YAML 1.2 or JSON, by hand or with the options of
`fairlease submit`; the same in JSON Schema: [contract](../schemas/json/contract.schema.json). Unknown keys are refused,
and every problem is told at once, with its rule and the way out. Rules are those of [decisions.md](decisions.md).
"""
_FIELDS_INTRO: Final = """\
`apiVersion` is `fairlease/v1` and `kind` is `Job`, both required. `metadata.name` is what people call the job (text, 1
to 128 characters, default `job`); its id is computed from account, budget and request id.
"""
_VALUES_SAY: Final = """\
A **length** is whole numbers with units, the largest first, each at most once: `ms`, `s`, `m`, `h`, `d`, as in `90s`,
`1h30m`, `7d`; at most 366 days. A **size** is a whole number of `Mi`, `Gi` or `Ti`, as in `64Gi`. A number without a
unit is refused, because somebody would guess. A **name** is 1 to 63
of `a-z`, `0-9` and `-`, without `-` at its ends. **Text** has no control, bidirectional or invisible characters and is
kept in Unicode normal form C. The name of an environment variable is a letter or `_`, then letters, digits and `_`.
"""
_CELL_SAYS: Final = """\
Whether a contract is well formed is known to whoever reads it; the rest needs the cell, and admission judges it. The
budget must be a leaf of the tree that the submitter is a member of (1.1); each pool must be one of the cell's, and the
registered hosts of one of them must be able to take the gang when empty, with all that it asks of them (1.2, 1.3); idle
work must be resumable (1.6); the jobs it waits for must exist (1.11). The numbers are those of the policy in force,
which `fairlease policy show` prints.
"""
_PROBLEMS_SAY: Final = """\
Nothing was submitted, `fairlease submit` names each problem with its line and column and exits with 65. A contract that
reaches the inbox all the same is answered by [job-refused](events.md#job-refused) with the same problems.
"""
_BODY_SAYS: Final = """\
The body is the contract with its defaults written out, lengths in milliseconds and sizes in mebibytes, as canonical
JSON; a field that came after the first release is left out at its default, so that digests do not change with releases.
The log holds its SHA-256 and the scheduling fields; the body itself, command, environment and labels included, is kept
beside the log.
"""
_ABSENT: Final = """\
## Not in this release

Refused by this release's agent, which starts plain processes: images, secrets. Compared before a resume only for
checkpoints in a `store:`: `state`.
Out of scope altogether: services without end, advance reservations by people, slices of a GPU, deadlines.
"""

# --- files ---------------------------------------------------------------------------------------------------


def generated() -> dict[str, str]:
    """Every generated file: path from the root of the tree, and its text."""
    pages = {"docs/events.md": events_page(), "docs/contract.md": contract_page()}
    for name, schema in json_schemas().items():
        pages[f"schemas/json/{name}"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return dict(sorted(pages.items()))


def stale(root: Path, pages: dict[str, str]) -> list[str]:
    """Files below `root` that are missing, differ from `pages`, or stand in schemas/json and are none of them."""
    present = {path.relative_to(root).as_posix() for path in (root / "schemas/json").glob("*")}
    names = [n for n, text in pages.items() if not (root / n).is_file() or (root / n).read_bytes() != text.encode()]
    return names + sorted(present - pages.keys())


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write, or with `--check` compare; 0 when all files are what the code says."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the JSON Schemas and their pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    args = parser.parse_args(argv)
    if not (root / "pyproject.toml").is_file():
        parser.error("this is an installed package: run it from a checkout, where docs/ and schemas/json/ are")
    pages = generated()
    names = stale(root, pages)
    for name in names:
        if args.check:
            print(f"{name} is not what the code says: run `{COMMAND}` (or `make docs`)")
        elif name in pages:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(pages[name].encode())
            print(f"{name}: written")
        else:
            (root / name).unlink()
            print(f"{name}: removed, nothing generates it")
    return 1 if args.check and names else 0


if __name__ == "__main__":
    raise SystemExit(main())
