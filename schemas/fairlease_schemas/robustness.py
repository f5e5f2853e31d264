"""How well a policy holds under other demand, sizes, mixes and people: one workload in many cases."""

import msgspec

from fairlease_schemas.comparison import Played, Range
from fairlease_schemas.explain import View


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is not within its limit: of one run by its `seed`, or the median over the seeds without one."""

    case: str
    figure: str
    value: float | None
    least: float | None
    most: float | None
    seed: int | None


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has no figures, and why. `is_honest` is the same without its game, which gains are measured by."""

    case: str
    seed: int
    is_honest: bool
    why: str


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case over the seeds; what it `says` is in words.

    Figures are those of SimulationReport that are told first, and all that have a limit. Of a case with a game also
    what its projects gained, the most of them, as parts of what they were due without it: `gain.held` more GPU-time
    held, `gain.useful` more work done, `gain.beyond` more held beyond what they are due, and `gain.cost_to_others` what
    all other budgets together fell shorter of what they are due.
    """

    says: str
    hosts: int
    gpus: int
    workload_digest: str
    figures: dict[str, Range]
    runs: tuple[Played, ...]


class Robustness(View, frozen=True, kw_only=True, tag_field="kind", tag="Robustness"):
    """The cases of a suite by one policy, and what is not within the suite's limits.

    `hosts` are those of the cases that say none of their own, 0 for as many as the workload has.
    `suite_digest` is of the file that says the cases and their limits, `digest` of everything that was found, but for
    what a machine's speed tells: the same suite, policy, span and seeds give the same one.
    """

    suite: str
    suite_digest: str
    policy: str
    hosts: int
    days: float
    warm_up_days: float
    seeds: tuple[int, ...]
    cases: dict[str, Case]
    missed: tuple[Missed, ...]
    missing: tuple[Lacking, ...]
    digest: str
