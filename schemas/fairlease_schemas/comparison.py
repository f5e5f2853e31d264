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
