"""A suite: one workload in many cases, each a few changes of it, and what must hold in all of them.

Cases are data, in the form of the workload's own file, so that whoever asks "and with twice the demand?" writes that
down and reads it again. A game is judged by what its projects gain over the same seed without it; that run is part of
the suite by itself. Runs of two cases that are the same run are played once.

Small changes move everything that comes after them, so one seed's gain is as much chance as gain: the case of a game
that helps nobody shows how much. Medians over seeds are held against limits, and what may never happen every run.
"""

import contextlib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from fairlease.runtime import plain_file
from fairlease.simulator.code import code_digest
from fairlease.simulator.comparison import Limit, Number, figures_of, spread_of
from fairlease.simulator.crew import Play, Tell
from fairlease.simulator.page.file import put
from fairlease.simulator.page.words import FIGURES
from fairlease.simulator.plays import play_lab
from fairlease.simulator.scenario import Scenario
from fairlease.simulator.workload_file import LAB_1024, WorkloadWrong, scenario_of
from fairlease_schemas.comparison import Played
from fairlease_schemas.robustness import Case, Lacking, Missed, Robustness

Data = dict[str, Any]
SUITE_FILE: Final = "lab-1024-robust.toml"
GAINS: Final = ("gain.held", "gain.useful", "gain.beyond", "gain.cost_to_others")
BROKEN: Final = ("preemption.window_breaks", "preemption.loops", "promises.broken")
_GAME: Final = "game"
_MAX_BYTES: Final = 1 << 20

_CaseName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([a-z0-9.-]{0,48}[a-z0-9])?$")]


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case as the suite says it: in words, what is different, and limits of its own over those of all cases."""

    says: str
    change: dict[str, Any] = {}
    limits: dict[str, Limit] = {}


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `limits` are of the median over the seeds, `every_run` of each run alone."""

    case: dict[_CaseName, Variant]
    workload: str = LAB_1024
    limits: dict[str, Limit] = {}
    every_run: dict[str, Limit] = {}


class Opened(NamedTuple):
    """A suite, where it lies, and its SHA-256 in hex."""

    name: str
    suite: Suite
    digest: str
    workload: Path | None


class Span(NamedTuple):
    """What of each case is played; None for what the workload says. `hosts` are for cases that say none, 0 for none."""

    hosts: int
    measured_ms: int | None
    warm_up_ms: int | None


class Run(NamedTuple):
    """One run: what is different from the workload, and its seed."""

    over: str
    hosts: int
    seed: int


def opened(file: Path | None) -> Opened:
    """The suite of a file, the shipped one without. OSError or WorkloadWrong when it is none."""
    name, raw = SUITE_FILE, shipped()
    if file is not None:
        with plain_file.opened(file) as read:
            name, raw = file.name, read.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise WorkloadWrong(name, [f"is larger than {_MAX_BYTES} bytes: {SUITE_FILE} is the model"])
    try:
        suite = msgspec.convert(tomllib.loads(raw.decode("utf-8-sig")), Suite)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, msgspec.ValidationError) as error:
        raise WorkloadWrong(name, [f"is no suite ({error}): {SUITE_FILE} is the model"]) from error
    is_lab = suite.workload == LAB_1024
    workload = None if is_lab else (file or Path()).parent / suite.workload
    return Opened(name, suite, hashlib.sha256(raw).hexdigest(), workload)


def shipped() -> bytes:
    """The suite that is shipped, as it is."""
    return resources.files("fairlease.simulator").joinpath(SUITE_FILE).read_bytes()


def scenarios(of: Opened, names: Iterable[str]) -> dict[str, Scenario]:
    """The workload of each case. WorkloadWrong with the first case that is none, OSError without its file."""
    found: dict[str, Scenario] = {}
    for name in names:
        try:
            found[name] = scenario_of(of.workload, of.suite.case[name].change)[0]
        except WorkloadWrong as error:
            raise WorkloadWrong(of.name, [f"[case.{name}] {error}"]) from error
    return found


# runs ------------------------------------------------------------------------------------------------
def runs_of(of: Opened, names: Sequence[str], seeds: Sequence[int], span: Span) -> list[Run]:
    """Every run that the cases need, each once, in the order in which they come up: honest ones before their games."""
    found: dict[Run, None] = {}
    for name in names:
        for seed in seeds:
            if _games(of, name):
                found[_run(of, name, seed, span, is_honest=True)] = None
            found[_run(of, name, seed, span)] = None
    return list(found)


def _run(of: Opened, name: str, seed: int, span: Span, *, is_honest: bool = False) -> Run:
    change = dict(of.suite.case[name].change)
    if is_honest:
        del change[_GAME]
    hosts = 0 if "hosts" in change.get("cluster", {}) else span.hosts
    return Run(json.dumps(change, sort_keys=True), hosts, seed)


def _games(of: Opened, name: str) -> Mapping[str, Any]:
    games: Mapping[str, Any] = of.suite.case[name].change.get(_GAME, {})
    return games


def plays_of(of: Opened, runs: Sequence[Run], policy: str, span: Span, keep: Path | None) -> list[Play]:
    """Each run as a process of its own plays it; what was kept of an earlier time is taken from there."""
    sources = code_digest() if keep is not None else ""
    return [
        partial(play, run=run, workload=of.workload, policy=policy, span=span, sources=sources, keep=keep)
        for run in runs
    ]


def play(
    on_done: Tell, *, run: Run, workload: Path | None, policy: str, span: Span, sources: str, keep: Path | None
) -> Data:
    """The figures of one run, and what says which it was. Wrong when workload or policy do not allow it."""
    over = json.loads(run.over)
    digest = scenario_of(workload, over)[1]
    told = json.dumps([sources, digest, run.hosts, run.seed, policy, span.measured_ms, span.warm_up_ms])
    place = keep / f"{hashlib.sha256(told.encode()).hexdigest()}.json" if keep is not None else None
    if place is not None and (kept := _kept(place)):
        return kept
    report = play_lab(
        on_done,
        policy=policy,
        seed=run.seed,
        hosts=run.hosts,
        measured_ms=span.measured_ms,
        warm_up_ms=span.warm_up_ms,
        file=workload,
        over=over,
    )
    found = {name: report[name] for name in ("digest", "workload_digest", "hosts", "gpus", "days")}
    found["figures"] = figures_of(report)
    if place is not None:
        with contextlib.suppress(OSError):  # a disk that is full costs the keeping, and not the run
            put(str(place), json.dumps(found))
    return found


def _kept(place: Path) -> Data:
    """What was kept there; empty where there is nothing that can be read, and the run is played again."""
    try:
        found: Data = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


# what came of them -----------------------------------------------------------------------------------
class Found(NamedTuple):
    """What became of the runs: their figures, or why there are none."""

    played: Mapping[Run, Data]
    why: Mapping[Run, str]


def result(of: Opened, names: Sequence[str], seeds: Sequence[int], span: Span, found: Found, frame: Data) -> Robustness:
    """The cases that have any figures, the limits that are missed, and the runs that are missing.

    `frame` says the policy and the span: `policy`, `hosts`, `days`, `warm_up_days`.
    """
    cases: dict[str, Case] = {}
    missed: list[Missed] = []
    lacking: list[Lacking] = []
    for name in names:
        told: dict[int, dict[str, Number | None]] = {}
        for seed in seeds:
            run = _run(of, name, seed, span)
            honest = _run(of, name, seed, span, is_honest=True) if _games(of, name) else run
            lacking += [
                Lacking(case=name, seed=seed, is_honest=one != run, why=found.why[one])
                for one in dict.fromkeys((run, honest))
                if one not in found.played
            ]
            if run in found.played:
                before = found.played[honest]["figures"] if honest in found.played else None
                figures = found.played[run]["figures"]
                told[seed] = {**figures, **gains_of(_games(of, name), figures, before)}
        if told:
            limits = {**of.suite.limits, **of.suite.case[name].limits}
            played = [found.played[_run(of, name, seed, span)] for seed in told]
            cases[name] = _case(of, name, frame["policy"], told, played, limits)
            missed += _missed(name, of.suite.every_run, limits, told, cases[name])
    outcome = Robustness(
        **frame,
        suite=of.name,
        suite_digest=of.digest,
        seeds=tuple(seeds),
        cases=cases,
        missed=tuple(missed),
        missing=tuple(lacking),
        digest="",
    )
    return msgspec.structs.replace(outcome, digest=hashlib.sha256(msgspec.json.encode(outcome)).hexdigest())


def gains_of(
    games: Iterable[str], figures: Mapping[str, Number | None], honest: Mapping[str, Number | None] | None
) -> dict[str, Number | None]:
    """What the projects with a game gained over the same seed without it, as parts of what they were due there.

    Of several projects each figure is that of who gained most. Nothing where there is no game; absent figures where
    the honest run is missing, or nothing was due there.
    """
    found = [_gain(name, figures, honest) for name in games]
    if not found:
        return {}
    columns = zip(*found, strict=True)
    return {
        name: None if None in column else max(value for value in column if value is not None)
        for name, column in zip(GAINS, columns, strict=True)
    }


def _gain(
    project: str, figures: Mapping[str, Number | None], honest: Mapping[str, Number | None] | None
) -> tuple[float | None, ...]:
    """What GAINS are of: held, useful, held beyond its due, and what others fell shorter of theirs, than without it."""

    def number(told: Mapping[str, Number | None], name: str) -> float:
        return float(told.get(f"{name}.{project}") or 0)

    due = number(honest, _DUE) if honest is not None else 0.0
    if honest is None or not due:
        return (None,) * len(GAINS)
    held = number(figures, _HELD) - number(honest, _HELD)
    useful = number(figures, _USEFUL) - number(honest, _USEFUL)
    beyond = [max(0.0, number(told, _HELD) - number(told, _DUE)) for told in (figures, honest)]
    short = [_shortfall(told, project) for told in (figures, honest)]
    return tuple(round(one / due, 6) for one in (held, useful, beyond[0] - beyond[1], short[0] - short[1]))


def _shortfall(told: Mapping[str, Number | None], player: str) -> float:
    """What the budgets beside this one held less than they were due, those that did, in GPU-hours."""
    found = 0.0
    for name, due in told.items():
        budget = name.removeprefix(f"{_DUE}.")
        if name.startswith(f"{_DUE}.") and budget != player:
            found += max(0.0, float(due or 0) - float(told.get(f"{_HELD}.{budget}") or 0))
    return found


_HELD: Final = "fulfilment.held_gpu_h"
_DUE: Final = "fulfilment.due_gpu_h"
_USEFUL: Final = "useful_gpu_h"


def _case(
    of: Opened,
    name: str,
    policy: str,
    told: Mapping[int, Mapping[str, Number | None]],
    played: Sequence[Data],
    limits: Mapping[str, Limit],
) -> Case:
    gains = GAINS if _games(of, name) else ()
    shown = dict.fromkeys((*FIGURES, *limits, *of.suite.every_run, *gains))
    return Case(
        says=of.suite.case[name].says,
        hosts=played[0]["hosts"],
        gpus=played[0]["gpus"],
        workload_digest=played[0]["workload_digest"],
        figures={
            figure: spread_of(figure, (figures.get(figure) for figures in told.values()))
            for figure in shown
            if figure not in GAINS or gains
        },
        runs=tuple(
            Played(policy=policy, seed=seed, digest=one["digest"]) for seed, one in zip(told, played, strict=True)
        ),
    )


def _missed(
    name: str,
    every_run: Mapping[str, Limit],
    limits: Mapping[str, Limit],
    told: Mapping[int, Mapping[str, Number | None]],
    case: Case,
) -> Iterator[Missed]:
    """Limits of each run, then of medians. A limit on a gain is for cases with a game alone."""

    def missed(figure: str, limit: Limit, value: Number | None, seed: int | None) -> Missed:
        return Missed(case=name, figure=figure, value=value, least=limit.least, most=limit.most, seed=seed)

    for figure, limit in every_run.items():
        for seed, figures in told.items():
            value = figures.get(figure)
            if not limit.holds(value):
                yield missed(figure, limit, value, seed)
    for figure, limit in limits.items():
        if figure in case.figures and not limit.holds(case.figures[figure].median):
            yield missed(figure, limit, case.figures[figure].median, None)
