"""Exploration: points of a grid over the numbers of a policy, and which of them no other point beats.

A point is a whole policy, known by the digest of what in it is not at its default: so one that two grids share is one
point. Medians are taken over the seeds that every point has which has any, so that an exploration that was interrupted
compares like with like. What this leaves to others: reading numbers (cli), playing (crew), keeping (kept).
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fairlease.simulator.comparison import Limit, Number, spread_of
from fairlease.simulator.draws import Stream
from fairlease_schemas import codec
from fairlease_schemas.comparison import Aim, Exploration, ExploredRun, Point, Range, Unplayed
from fairlease_schemas.policy import Policy

LEAST: Final = "least"
MOST: Final = "most"
AIMS: Final[Mapping[str, Aim]] = {
    "fulfilment.mean": Aim(best=MOST),
    "fulfilment.lowest": Aim(best=MOST),
    "occupancy": Aim(best=MOST),
    "wait.debug.p90_s": Aim(best=LEAST),
    "wait.all.p90_s": Aim(best=LEAST),
    "wait.gangs_128.p90_s": Aim(best=LEAST),
    "preemption.overhead": Aim(best=LEAST),
}
"""What is aimed at unless somebody says otherwise."""
_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(Policy)}


class Run(NamedTuple):
    """A run that came to its end: its point and seed, the digest of its fold, the code that decided, its figures."""

    policy_digest: str
    seed: int
    digest: str
    code: str
    figures: Mapping[str, Number | None]


def run_of(told: ExploredRun, wanted: Iterable[str]) -> Run:
    """The run with these of its figures."""
    figures = {name: told.figures.get(name) for name in wanted}
    return Run(told.policy_digest, told.seed, told.digest, told.code, figures)


class Frame(NamedTuple):
    """What all runs have in common."""

    workload: str
    workload_digest: str
    hosts: int
    gpus: int
    days: float


# points ----------------------------------------------------------------------------------------------
def size_of(grid: Mapping[str, Sequence[Any]]) -> int:
    """How many points the grid has: 1 for one of nothing."""
    return math.prod(len(values) for values in grid.values())


def points_of(grid: Mapping[str, Sequence[Any]], base: Policy, places: Iterable[int]) -> list[Policy]:
    """The points at these places of the grid, the number that was named last changing first; on top of `base`."""
    return [msgspec.structs.replace(base, **_at(grid, place)) for place in places]


def _at(grid: Mapping[str, Sequence[Any]], place: int) -> dict[str, Any]:
    found = {}
    for name, values in reversed(list(grid.items())):
        place, index = divmod(place, len(values))
        found[name] = values[index]
    return found


def drawn(size: int, sample: int, seed: int) -> list[int]:
    """So many places below `size`, each set of them as likely as any other, ascending; all, where there are no more.

    The first steps of a shuffle (Fisher and Yates), of which only what was moved is remembered.
    """
    stream = Stream(seed, "explore")
    moved: dict[int, int] = {}
    found = []
    for step in range(min(sample, size)):
        other = step + stream.below(size - step)
        found.append(moved.get(other, other))
        moved[other] = moved.get(step, step)
    return sorted(found)


def plain_of(policy: Policy) -> dict[str, Any]:
    """The numbers of a policy that are not at their default, as plain data."""
    return {
        name: msgspec.to_builtins(value)
        for name in policy.__struct_fields__
        if (value := getattr(policy, name)) != _DEFAULTS[name]
    }


def whole_of(policy: Policy) -> dict[str, Any]:
    """All numbers of a policy as plain data: defaults may be others tomorrow."""
    return {name: msgspec.to_builtins(getattr(policy, name)) for name in policy.__struct_fields__}


def digest_of_policy(policy: Policy) -> str:
    """The SHA-256, in hex, by which a point is known."""
    return codec.digest(plain_of(policy))


# the front -------------------------------------------------------------------------------------------
def worth(figures: Mapping[str, Number | None], aims: Mapping[str, Aim]) -> tuple[float, ...]:
    """How good the figures are, by the aims and in their steps: more is better, and an absent one is worse than any."""
    return tuple(_worth(figures.get(name), aim) for name, aim in aims.items())


def _worth(value: Number | None, aim: Aim) -> float:
    if value is None:
        return -math.inf
    steps = round(value / aim.step) if aim.step else value
    return steps if aim.best == MOST else -steps


def front_of(points: Sequence[tuple[float, ...]]) -> list[bool]:
    """Of each point, by its worth, whether no other is as good in every aim and better in one (Pareto's front).

    Points of the same worth do not beat each other. The slow model compares all with all; here they come in the order
    of their worth, best first, so that only what stands on the front already can beat the next.
    """
    front: list[tuple[float, ...]] = []
    found = [False] * len(points)
    for index in sorted(range(len(points)), key=lambda index: points[index], reverse=True):
        point = points[index]
        found[index] = not any(
            other != point and all(theirs >= ours for theirs, ours in zip(other, point, strict=True)) for other in front
        )
        if found[index] and (not front or front[-1] != point):
            front.append(point)
    return found


# the answer ------------------------------------------------------------------------------------------
def explored(
    frame: Frame,
    points: Sequence[Policy],
    seeds: Sequence[int],
    runs: Collection[Run],
    missing: Sequence[Unplayed],
    *,
    aims: Mapping[str, Aim],
    limits: Mapping[str, Limit],
) -> Exploration:
    """The exploration of these points, in their order. Runs of other points or seeds than these are left out."""
    known = {digest_of_policy(point): point for point in points}
    by_point: dict[str, dict[int, Run]] = {digest: {} for digest in known}
    for run in runs:
        if run.policy_digest in by_point and run.seed in seeds:
            by_point[run.policy_digest][run.seed] = run
    begun = [found for found in by_point.values() if found]
    compared = tuple(seed for seed in seeds if begun and all(seed in found for found in begun))
    shared, own = _apart([plain_of(point) for point in known.values()])
    rows = [
        _figures([found[seed].figures for seed in compared if seed in found], (*aims, *limits))
        for found in by_point.values()
    ]
    medians = [{name: one.median for name, one in row.items()} for row in rows]
    placed = [place for place, found in enumerate(by_point.values()) if found and compared]
    front = front_of([worth(medians[place], aims) for place in placed])
    on_front = {place for place, is_front in zip(placed, front, strict=True) if is_front}
    told = tuple(
        Point(
            policy_digest=digest,
            numbers=own[place],
            figures=rows[place],
            missed=tuple(name for name, limit in limits.items() if not limit.holds(medians[place].get(name))),
            is_front=place in on_front,
            seeds=tuple(sorted(found)),
        )
        for place, (digest, found) in enumerate(by_point.items())
    )
    played = [run for found in by_point.values() for _, run in sorted(found.items())]
    proof = [[run.policy_digest, run.seed, run.digest] for run in played]
    return Exploration(
        **frame._asdict(),
        code=tuple(sorted({run.code for run in played})),
        seeds=compared,
        aims=dict(aims),
        shared=shared,
        points=told,
        missing=tuple(missing),
        digest=hashlib.sha256(msgspec.json.encode([frame.workload_digest, [*by_point], proof])).hexdigest(),
    )


def _apart(plain: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(numbers that all points have in common, of each point the others): a default that differs is written out."""
    names = [name for name in _DEFAULTS if any(name in one for one in plain)]
    whole = [{name: one.get(name, msgspec.to_builtins(_DEFAULTS[name])) for name in names} for one in plain]
    same = {name for name in names if all(one[name] == whole[0][name] for one in whole)}
    shared = {name: whole[0][name] for name in names if name in same}
    return shared, [{name: value for name, value in one.items() if name not in same} for one in whole]


def _figures(runs: Sequence[Mapping[str, Number | None]], names: Iterable[str]) -> dict[str, Range]:
    return {name: spread_of(name, (run.get(name) for run in runs)) for name in dict.fromkeys(names)}
