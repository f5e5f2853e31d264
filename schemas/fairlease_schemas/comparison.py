"""What becomes of a comparison of policies: figures by their public names, over all seeds."""

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
