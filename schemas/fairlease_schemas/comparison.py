"""What becomes of a comparison of policies, or of their numbers: figures by their public names, over all seeds."""

from typing import Any

import msgspec

from fairlease_schemas.explain import View


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the seeds; the median is the lower one of two in the middle. Absent where no run has it."""

    median: float | None
    min: float | None
    max: float | None


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A run that came to its end, and the digest of its fold."""

    policy: str
    seed: int
    digest: str


class Unplayed(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has no figures, and why."""

    policy: str
    seed: int
    why: str


class Comparison(View, frozen=True, kw_only=True, tag_field="kind", tag="Comparison"):
    """Policies over the same workload and seeds.

    `policies` is by policy each figure of SimulationReport, its keys joined by dots. `missed` are the figures of the
    first policy that are not within the limits that were asked for, `missing` the runs without figures. `digest` is of
    everything but what a machine's speed tells: the same workload, policies and seeds give the same one, in however
    many processes they are played.
    """

    workload: str
    workload_digest: str
    hosts: int
    gpus: int
    days: float
    seeds: tuple[int, ...]
    policies: dict[str, dict[str, Range]]
    missed: tuple[str, ...]
    missing: tuple[Unplayed, ...]
    runs: tuple[Played, ...]
    digest: str


class ExploredRun(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="ExploredRun"
):
    """A line of the file that an exploration keeps: one run, and all that its figures depend on.

    `numbers` are all those of the policy, `policy_digest` is the SHA-256 of those that are not at their default, `code`
    that of the rules that decided, `digest` of the run's fold. `figures` are those of SimulationReport, keys joined by
    dots.
    """

    workload_digest: str
    hosts: int
    warm_up_ms: int
    measured_ms: int
    code: str
    numbers: dict[str, Any]
    policy_digest: str
    seed: int
    digest: str
    figures: dict[str, int | float | None]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of numbers: those that are not the same at all points, and what came of it.

    `figures` are those that were aimed at or limited, over the seeds that are compared. `missed` are the limits that
    their medians do not keep. `is_front`: no other point is as good in every aim and better in one. `seeds` are those
    that it was played with.
    """

    policy_digest: str
    numbers: dict[str, Any]
    figures: dict[str, Range]
    missed: tuple[str, ...]
    is_front: bool
    seeds: tuple[int, ...]


class Aim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which end of a figure is `best`: `least` or `most`. Values that are one when rounded to a `step` are equal."""

    best: str
    step: float = 0


class Exploration(View, frozen=True, kw_only=True, tag_field="kind", tag="Exploration"):
    """Points of a grid over the numbers of a policy, on the same workload and seeds.

    `seeds` are those that are compared: all that every point has which has any. `aims` are the figures by which points
    are compared. `shared` are the numbers that are the same at all points and not at their default; the others are
    `numbers` of each point. `missing` are runs without figures, `policy` the digest of their point. `code` are the
    digests of the rules that played.
    `digest` is of the workload, the points and the folds of their runs.
    """

    workload: str
    workload_digest: str
    hosts: int
    gpus: int
    days: float
    code: tuple[str, ...]
    seeds: tuple[int, ...]
    aims: dict[str, Aim]
    shared: dict[str, Any]
    points: tuple[Point, ...]
    missing: tuple[Unplayed, ...]
    digest: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as it `was`, as it came out when the same was played `again`, and as it `would` have been."""

    was: float | None
    again: float | None
    would: float | None


class WaitChange(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose wait for its first grant is another one; in ms, absent where it would not have been admitted."""

    job: str
    budget: str
    was_ms: int
    again_ms: int | None
    would_ms: int | None


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """A rule by which what the log cannot tell was filled in, and how many things it met."""

    rule: str
    count: int


class WhatIf(View, frozen=True, kw_only=True, tag_field="kind", tag="WhatIf"):
    """A recorded log and what would have been under a change.

    `change` names what is otherwise and how. `figures` are those of SimulationReport, keys joined by dots: compare
    `would` with `again`, which carries the same assumptions; what lies between `was` and `again` is what these cost.
    `earlier`, `later` and `same` count jobs by their wait, `jobs` are the most changed ones, the largest change first.
    `digest` is that of the log's fold.
    """

    digest: str
    days: float
    hosts: int
    gpus: int
    change: dict[str, str]
    figures: dict[str, Outcome]
    earlier: int
    later: int
    same: int
    jobs: tuple[WaitChange, ...]
    rules: tuple[Assumption, ...]


KINDS = Comparison | Exploration | ExploredRun | WhatIf
"""Everything that is published of simulations put side by side."""
