"""What `submit` hands in: the contract of a file, of options, or of a file with options over it.

Everything is checked here with the same model that admission uses, before the bus is even looked
for, so that a typing mistake costs a moment and is told with its line and column. Options beat the
file: one file serves a whole pipeline. pydantic is imported when a contract is at hand, not before.
"""

import argparse
import copy
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlease.cli.exits import CONTRACT, USAGE, CommandError, Finding
from fairlease_schemas.ids import REQUEST_ID_PATTERN
from fairlease_schemas.units import format_length, format_memory

if TYPE_CHECKING:
    from fairlease.cli.document import Document
    from fairlease.cli.packing import Packed
    from fairlease_schemas.contract import Contract
    from fairlease_schemas.job import Advice, Problem

_OPTIONS: Final = {
    "job_name": ("metadata.name", "--name"),
    "budget": ("spec.budget", "--budget"),
    "hosts": ("spec.hosts", "--hosts"),
    "gpus_per_host": ("spec.gpus_per_host", "--gpus-per-host"),
    "pool": ("spec.pools", "--pool"),
    "min_runtime": ("spec.min_runtime", "--min-runtime"),
    "timeout": ("spec.timeout", "--timeout"),
    "on_timeout": ("spec.on_timeout", "--on-timeout"),
    "grace": ("spec.checkpoint.grace", "--grace"),
    "max_retries": ("spec.max_retries", "--max-retries"),
    "lane": ("spec.lane", "--lane"),
    "cpu_per_host": ("spec.cpu_per_host", "--cpu-per-host"),
    "memory_per_host": ("spec.memory_per_host", "--memory-per-host"),
    "disk_per_host": ("spec.disk_per_host", "--disk-per-host"),
    "gpu_model": ("spec.constraints.gpu_model", "--gpu-model"),
    "min_gpu_memory": ("spec.constraints.min_gpu_memory", "--min-gpu-memory"),
    "same_block": ("spec.constraints.same_block", "--same-block"),
    "checkpoint_uri": ("spec.checkpoint.uri", "--checkpoint-uri"),
    "checkpoint_interval": ("spec.checkpoint.interval", "--checkpoint-interval"),
    "checkpoint_signal": ("spec.checkpoint.signal", "--checkpoint-signal"),
    "array": ("spec.array", "--array"),
    "after": ("spec.after", "--after"),
    "evaluation": ("spec.evaluation", "--evaluation"),
    "image": ("spec.image", "--image"),
    "source_repo": ("spec.source.repo", "--source-repo"),
    "source_commit": ("spec.source.commit", "--source-commit"),
    "source_bundle": ("spec.source.bundle", "--source-bundle"),
    "start_limit": ("spec.start_limit", "--start-limit"),
}
"""Argument to the field of the contract it sets, and the option's name as people type it."""

_PAIRS: Final = {
    "env": (("spec", "env"), "--env"),
    "secret": (("spec", "secrets"), "--secret"),
    "label": (("spec", "labels"), "--label"),
    "host_label": (("spec", "constraints", "labels"), "--host-label"),
}
"""Argument of KEY=VALUE pairs to the mapping that they are put into."""


_TERM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}")
"""Names of kinds of terminals."""
_UNGIVEN: Final = ("image", "secrets")


class Submission(NamedTuple):
    """A contract that holds: the plain data that is sent, the model it was checked with, and its request id.

    `packed` is the code that must be on the bus before it, where it was packed here.
    """

    data: dict[str, Any]
    contract: "Contract"
    request_id: str
    packed: "Packed | None" = None


class _Source(NamedTuple):
    """Where the contract came from: a file with places, or nothing but options."""

    name: str
    document: "Document | None"


def read_submission(args: argparse.Namespace) -> Submission:
    """The submission these arguments describe.

    Raises CommandError: 64 for arguments that describe none, 65 for a contract with problems (all of
    them are named) and for a file that cannot be read.
    """
    request_id = _request_id(args.request_id)
    if args.file is None and not args.command and not args.interactive:
        raise CommandError(
            USAGE, "there is nothing to submit", way_out="name a contract file, or write -- and the command of the job"
        )
    if args.file is None:
        source = _Source("", None)
        data: object = {"apiVersion": "fairlease/v1", "kind": "Job", "spec": {}}
    else:
        source = _read_file(args.file)
        assert source.document is not None
        data = copy.copy(source.document.data)
    given = _lay_over(data, args)
    if args.interactive:
        _fill_in(data)
    packed = _packed(args)
    if packed is not None and _put(data, "spec.source", {"bundle": packed.bundle}):
        given["spec.source"] = "--bundle"
    return Submission(*_checked(data, source, given), request_id, packed)


def _fill_in(data: object) -> None:
    """What an interactive job has where nobody said otherwise (1.17)."""
    shell = [os.environ.get("SHELL") or "/bin/sh", "-i"]
    defaults = {"lane": "debug", "min_runtime": "15m", "timeout": "15m", "command": shell}
    spec = data.get("spec") if isinstance(data, dict) else None
    if isinstance(spec, dict):
        spec["terminal"] = True
        for key, value in defaults.items():
            spec.setdefault(key, value)
        kind = os.environ.get("TERM", "")
        if sys.stdin.isatty() and _TERM.fullmatch(kind) and isinstance(spec.setdefault("env", {}), dict):
            spec["env"].setdefault("TERM", kind)


def _packed(args: argparse.Namespace) -> "Packed | None":
    """The bundle of `--bundle`; CommandError 64 where another option names the code too, 65 as `pack` has it."""
    if args.bundle is None:
        return None
    if any((args.source_repo, args.source_commit, args.source_bundle)):
        raise CommandError(USAGE, "--bundle is the whole source of a job", way_out="leave out --source-…")
    from fairlease.cli.packing import pack

    return pack(args.bundle)


def advice_on(contract: "Contract") -> "Advice | None":
    """What no agent of this release can give, told before hosts are taken for a run that cannot start.

    Only here: a cell decides by scheduling fields alone, and these are none.
    """
    from fairlease_schemas.job import Advice

    asked = [name for name in _UNGIVEN if getattr(contract.spec, name)]
    if not asked:
        return None
    text = f"no agent of this release gives {' and '.join(asked)}: the job would be granted its hosts and fail to start"
    return Advice(field=f"spec.{asked[0]}", rule="1.13", text=text)


def _request_id(text: str | None) -> str:
    if text is None:
        import secrets

        return secrets.token_hex(16)
    if re.fullmatch(REQUEST_ID_PATTERN, text) is None:
        raise CommandError(
            USAGE,
            f"argument --request-id: {text[:60]!r} is not a request id",
            way_out="write 1 to 128 of A-Z a-z 0-9 . _ : @ / + = - and begin with a letter or a digit",
        )
    return text


def _read_file(name: str) -> _Source:
    """The file as a document; `-` is standard input."""
    from fairlease.cli.document import MAX_BYTES, DocumentError, read_document

    shown = "standard input" if name == "-" else name
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(
            CONTRACT, f"cannot read the contract {shown}: {reason}", way_out="name a readable file, or - for input"
        ) from error
    try:
        return _Source(shown, read_document(raw))
    except DocumentError as error:
        finding = Finding("", way_out=error.text, file=shown, line=error.place.line, column=error.place.column)
        raise CommandError(CONTRACT, f"{shown} is not a contract", findings=[finding]) from error


def _lay_over(data: object, args: argparse.Namespace) -> dict[str, str]:
    """Put the options into the data, and say which option wrote which field.

    Data that is no mapping, or has one missing where a mapping belongs, is left for the contract to refuse.
    """
    given: dict[str, str] = {}
    for argument, (path, option) in _OPTIONS.items():
        value = getattr(args, argument)
        if value is not None and _put(data, path, value):
            given[path] = option
    if args.not_resumable and _put(data, "spec.resumable", value=False):
        given["spec.resumable"] = "--not-resumable"
    if args.command and _put(data, "spec.command", list(args.command)):
        given["spec.command"] = "--"
    for argument, (parents, option) in _PAIRS.items():
        for key, value in getattr(args, argument) or ():
            if _put_key(data, parents, key, value):
                given[".".join((*parents, key))] = option
    return given


def _put(data: object, path: str, value: object) -> bool:
    *parents, key = path.split(".")
    return _put_key(data, tuple(parents), key, value)


def _put_key(data: object, parents: tuple[str, ...], key: str, value: object) -> bool:
    """Set one field, making the mappings around it where they are absent; False where something else is there."""
    for parent in parents:
        if not isinstance(data, dict):
            return False
        data = data.setdefault(parent, {})
    if not isinstance(data, dict):
        return False
    data[key] = value
    return True


def _checked(data: object, source: _Source, given: dict[str, str]) -> tuple[dict[str, Any], "Contract"]:
    """The data and its contract; CommandError with every problem where there is none."""
    import msgspec

    from fairlease_schemas.contract import MAX_CONTRACT_BYTES, read_contract

    contract, problems = read_contract(data)
    if contract is None or not isinstance(data, dict):
        findings = [_finding(problem, source, given) for problem in problems]
        raise CommandError(CONTRACT, f"{source.name or 'what was written'} is not a contract", findings=findings)
    size = len(msgspec.json.encode(data))
    if size > MAX_CONTRACT_BYTES:
        raise CommandError(
            CONTRACT,
            f"the contract has {size} bytes, the limit is {MAX_CONTRACT_BYTES}",
            way_out="shorten the command or the environment: keep long text in a file the job reads",
        )
    return data, contract


def _finding(problem: "Problem", source: _Source, given: dict[str, str]) -> Finding:
    """A problem with the place it was written at: a line of the file, or an option."""
    field = _shown(problem.field)
    option = next((given[nearer] for nearer in _around(problem.field) if nearer in given), "")
    finding = Finding(field, problem.rule, problem.value, problem.limit, problem.way_out)
    if option:
        return finding._replace(field=f"{field} ({option})")
    if source.document is None:
        flag = next((flag for path, flag in _OPTIONS.values() if path == problem.field), "")
        return finding._replace(field=f"{field} ({flag})") if flag else finding
    place = source.document.place_of(problem.field)
    return finding._replace(file=source.name, line=place.line, column=place.column)


def _around(path: str) -> list[str]:
    """The path and every path above it, the nearest first."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _shown(path: str) -> str:
    """A path that may hold a stranger's keys, safe on a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in path)


def written_out(contract: "Contract") -> dict[str, Any]:
    """The contract with its defaults, as a file could say it: what `--dry-run` shows. What was not said is left out."""
    plain = contract.model_dump(mode="json")
    plain["spec"] = {key: value for key, value in _said(plain["spec"]).items() if value or key not in _OFTEN_EMPTY}
    return plain


_LENGTHS: Final = frozenset(("min_runtime", "timeout", "grace", "interval", "start_limit"))
_SIZES: Final = frozenset(("memory_per_host", "disk_per_host", "min_gpu_memory"))
_OFTEN_EMPTY: Final = frozenset(("after", "labels", "secrets", "terminal"))


def _said(block: dict[str, Any]) -> dict[str, Any]:
    """A block without what is absent, its lengths and sizes with their units."""
    said: dict[str, Any] = {}
    for key, value in block.items():
        if key in _LENGTHS and isinstance(value, int):
            said[key] = format_length(value)
        elif key in _SIZES and isinstance(value, int):
            said[key] = format_memory(value)
        elif value is not None:
            said[key] = _said(value) if isinstance(value, dict) else value
    return said
