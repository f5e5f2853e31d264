"""A workload in a file of its own, in the form of lab-1024.toml: read strictly, every problem of it told at once.

Whoever writes one has the reference workload open beside it. So a problem names the table and the key as they stand in
the file, the value, and what to write; the types and bounds are those that scenario.py declares, and nothing is taken
for granted that a run would stumble over days later.

A file that says `based_on = "lab-1024"` has what is different and nothing else: tables are laid over those of the
reference workload key by key, and everything else takes the place of what was there.
"""

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from fairlease.runtime import plain_file
from fairlease.simulator import quantiles
from fairlease.simulator.draws import tables
from fairlease.simulator.scenario import IDLE, Duration, JobClass, Scenario, lab_1024, workload_bytes, workload_digest
from fairlease.trace.cells import listed

MAX_BYTES: Final = 1 << 20
_SHOWN_CHARS: Final = 60
_WHOLE: Final = 1_000
_NO_NAME: Final = "is no name: write 1-50 of a-z 0-9 -, neither end a dash"
_MODEL: Final = "lab-1024.toml is the model"
BASED_ON: Final = "based_on"
LAB_1024: Final = "lab-1024"


class Problem(NamedTuple):
    """One thing wrong: the table as it is written in the file (empty: the top), key, value and text."""

    table: str
    key: str
    value: str
    text: str

    def sentence(self) -> str:
        """`[cluster] hosts = 0: is below 1: ...` for people."""
        table = f"[{self.table}] " if self.table else ""
        value = f" = {self.value[:_SHOWN_CHARS]}" if self.value else ""
        return f"{table}{self.key}{value}: {self.text}"


class WorkloadWrong(ValueError):
    """The file is no workload; says the file and each problem."""

    def __init__(self, file: str, problems: Sequence[str]) -> None:
        super().__init__(listed(file, problems))


def scenario_of(file: Path | None, over: Mapping[str, Any] | None = None) -> tuple[Scenario, str]:
    """The workload of a file, lab-1024 without one, and its digest in hex. OSError or WorkloadWrong if it is none.

    `over` is what is different, in the form of the file, and is laid over it. The digest is the SHA-256 of the file;
    where something is laid over another file, of that one's digest and of what is different.
    """
    if file is None:
        plain, digest = tomllib.loads(workload_bytes().decode()), workload_digest()
    else:
        with plain_file.opened(file) as opened:
            raw = opened.read(MAX_BYTES + 1)
        plain, digest = _read(file.name, raw), hashlib.sha256(raw).hexdigest()
    name = LAB_1024 if file is None else file.name
    if BASED_ON in plain:
        plain, digest = _based(name, plain)
    if over:
        plain, digest = laid(plain, over), _digest_over(digest, over)
    return _parsed(name, plain), digest


def file_of(workload: str) -> Path | None:
    """The file that `--workload` names; None for the one that is shipped."""
    return None if workload == LAB_1024 else Path(workload)


def laid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """One table laid over another: tables key by key, everything else in the place of what was there."""
    found = dict(under)
    for key, value in over.items():
        below = found.get(key)
        found[key] = laid(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return found


def _based(name: str, plain: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What a file says over the reference workload, and the digest of both."""
    base = plain[BASED_ON]
    if base != LAB_1024:
        raise WorkloadWrong(name, [f'{BASED_ON} = {_shown(base)}: is no workload that is shipped: write "{LAB_1024}"'])
    over = {key: value for key, value in plain.items() if key != BASED_ON}
    return laid(tomllib.loads(workload_bytes().decode()), over), _digest_over(workload_digest(), over)


def _digest_over(digest: str, over: Mapping[str, Any]) -> str:
    told = json.dumps([digest, over], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(told.encode()).hexdigest()


def tables_of(scenario: Scenario) -> Mapping[str, Sequence[int]]:
    """The quantile tables that it draws from: the shipped ones of lab-1024, else made anew in half a second."""
    return tables() if scenario == lab_1024() else quantiles.made(scenario)


def _read(file: str, raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_BYTES:
        raise WorkloadWrong(file, [f"is larger than {MAX_BYTES} bytes: {_MODEL}"])
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise WorkloadWrong(file, [f"is no TOML in UTF-8 ({error}): {_MODEL}"]) from error


def _parsed(file: str, plain: Mapping[str, Any]) -> Scenario:
    problems = list(_struct("", "", plain, inspect.type_info(Scenario)))
    if not problems:
        scenario = msgspec.convert(plain, Scenario)
        problems = list(_sense(scenario))
        if not problems:
            return scenario
    raise WorkloadWrong(file, [problem.sentence() for problem in problems])


# types and bounds ------------------------------------------------------------------------------------
def _struct(table: str, key: str, value: object, kind: inspect.Type) -> Iterator[Problem]:
    """Every key of a table that is missing, unknown, or not what it should be."""
    assert isinstance(kind, inspect.StructType)
    if not isinstance(value, dict):
        yield Problem(table, key, _shown(value), f"is no table: {_MODEL}")
        return
    inside = _inside(table, key)
    known = {field.encode_name: field for field in kind.fields}
    for name in (name for name in value if name not in known):
        yield Problem(
            inside, name, _shown(value[name]), f"is unknown: write one of {', '.join(known)}, or leave it out"
        )
    for name, field in known.items():
        if name in value:
            yield from _value(inside, name, value[name], field.type)
        elif field.required:
            yield Problem(inside, name, "", f"is missing: {_MODEL}")


def _inside(table: str, key: str) -> str:
    return f"{table}.{key}" if table and key else table or key


def _value(table: str, key: str, value: object, kind: inspect.Type) -> Iterator[Problem]:
    match kind:
        case inspect.StructType():
            yield from _struct(table, key, value, kind)
        case inspect.DictType():
            yield from _dict(table, key, value, kind)
        case inspect.VarTupleType():
            if not isinstance(value, list) or not value:
                is_of_tables = isinstance(kind.item_type, inspect.StructType)
                numbers = "is no list of one number or more: write for example [1, 8]"
                text = f"is no list of tables: write [[{key}]] above each" if is_of_tables else numbers
                yield Problem(table, key, _shown(value), text)
                return
            for place, one in enumerate(value):
                yield from _value(table, f"{key}[{place}]", one, kind.item_type)
        case _:
            text = _scalar(value, kind)
            if text:
                yield Problem(table, key, _shown(value), text)


def _dict(table: str, key: str, value: object, kind: inspect.DictType) -> Iterator[Problem]:
    if not isinstance(value, dict) or not value:
        yield Problem(table, key, _shown(value), f"is no table with an entry: {_MODEL}")
        return
    for name, one in value.items():
        if isinstance(kind.key_type, inspect.StrType) and _scalar(name, kind.key_type):
            yield Problem(_inside(table, key), name, "", _NO_NAME)
        yield from _value(_inside(table, key), name, one, kind.value_type)


def _scalar(value: object, kind: inspect.Type) -> str:
    """What is wrong with a single value, empty if nothing is."""
    match kind:
        case inspect.BoolType():
            return "" if isinstance(value, bool) else "is neither true nor false: write one of them"
        case inspect.IntType():
            if isinstance(value, bool) or not isinstance(value, int):
                return "is no whole number: write digits alone"
            return _bounds(value, kind.ge, kind.le)
        case inspect.FloatType():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                return "is no number: write digits, with a point at most"
            return _bounds(value, kind.ge, kind.le)
        case inspect.LiteralType():
            return (
                "" if value in kind.values else f"is none of {', '.join(_shown(one) for one in kind.values)}: write one"
            )
        case inspect.StrType():
            is_name = isinstance(value, str) and re.fullmatch(kind.pattern or "", value) and value.isascii()
            return "" if is_name and "\n" not in str(value) else _NO_NAME
        case _:
            raise AssertionError(f"a workload has no field of type {kind}")


def _shown(value: object) -> str:
    """The value much as it stands in the file."""
    return json.dumps(value, default=str)


def _bounds(value: float, least: float | None, most: float | None) -> str:
    if least is not None and value < least:
        return f"is below {least}: write {least} to {most}"
    if most is not None and value > most:
        return f"is above {most}: write {least} to {most}"
    return ""


# sense -----------------------------------------------------------------------------------------------
def _sense(scenario: Scenario) -> Iterator[Problem]:
    """What no single value shows."""
    yield from _names(scenario)
    if IDLE not in scenario.classes:
        yield Problem("class", IDLE, "", f"is missing: the work without a window needs a class, {_MODEL}")
    counted = sum(of.count_permille for name, of in scenario.classes.items() if name != IDLE)
    if counted != _WHOLE:
        yield Problem(
            "class", "count_permille", str(counted), f"is the sum of all classes but {IDLE}: make it {_WHOLE}"
        )
    for name, of in scenario.classes.items():
        yield from _class(f"class.{name}", of, scenario, is_idle=name == IDLE)
    yield from _people(scenario)
    said = scenario.priority
    total = said.high_permille + said.normal_permille + said.low_permille
    if total != _WHOLE:
        yield Problem("priority", "high_permille + normal_permille + low_permille", str(total), f"make it {_WHOLE}")


def _people(scenario: Scenario) -> Iterator[Problem]:
    """Budgets and projects that changes and games name, and that the tree has not."""
    projects = [project for org in scenario.budgets.values() for project in org.projects]
    for number, change in enumerate(scenario.change):
        if change.budget not in (*scenario.budgets, *projects):
            text = f"is no budget: write one of {', '.join((*scenario.budgets, *projects))}"
            yield Problem(f"change[{number}]", "budget", _shown(change.budget), text)
    for name in scenario.game:
        if name not in projects:
            yield Problem("game", name, "", f"is no project: write one of {', '.join(projects)}")


def _names(scenario: Scenario) -> Iterator[Problem]:
    met = Counter([*scenario.budgets, *(project for org in scenario.budgets.values() for project in org.projects)])
    for name, count in met.items():
        if count > 1:
            yield Problem(
                "budgets", name, "", f"stands there {count} times: give each budget and project a name of its own"
            )


def _class(table: str, of: JobClass, scenario: Scenario, *, is_idle: bool) -> Iterator[Problem]:
    cluster = scenario.cluster
    if is_idle and of.count_permille:
        yield Problem(table, "count_permille", str(of.count_permille), f"{IDLE} work is not counted: leave it out")
    for gpus in of.gpus:
        if gpus > cluster.gpus_per_host and gpus % cluster.gpus_per_host:
            text = f"is above one host and no whole hosts of {cluster.gpus_per_host}: write a multiple"
            yield Problem(table, "gpus", str(gpus), text)
    timeout_min = of.timeout_min + 60 * of.timeout_h
    if not timeout_min:
        yield Problem(table, "timeout_min", "0", "is no time: write timeout_min or timeout_h")
    if max(of.window_min) > timeout_min > 0:
        text = f"is above the timeout of {timeout_min} minutes: write a shorter window"
        yield Problem(table, "window_min", str(max(of.window_min)), text)
    yield from _duration(f"{table}.duration", of.duration)


def _duration(table: str, of: Duration) -> Iterator[Problem]:
    if of.kind == quantiles.EXPONENTIAL and not of.mean_s:
        yield Problem(table, "mean_s", "0", "is no mean: write one of a second or more")
    if of.kind == quantiles.LOGNORMAL and not (of.median_h and of.sigma):
        yield Problem(table, "median_h, sigma", f"{of.median_h:g}, {of.sigma:g}", "need to be above 0: write both")
    most_s = of.max_s or 3_600 * of.max_h
    if most_s <= of.min_s:
        text = f"is not above min_s = {of.min_s}: write max_s or max_h, the longest that the work may be"
        yield Problem(table, "max_s", str(most_s), text)
