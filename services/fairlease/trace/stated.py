"""What a trace lacks, by stated rules: the shape of a gang, windows, names, budgets, the policy.

Nothing here is a matter of taste that nobody sees: each rule is a sentence of the report, with the number of jobs
it met.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from fairlease.trace.recorded import RecordedJob
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.ids import BudgetId
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.units import HOUR_MS, MINUTE_MS

ROOT_BUDGET: Final = "trace"
EQUAL, GPU_HOURS = "equal", "gpu-hours"
WEIGHTS: Final = (EQUAL, GPU_HOURS)
WINDOWS: Final = ((8, 15 * MINUTE_MS), (64, 30 * MINUTE_MS), (1 << 30, HOUR_MS))
"""By GPUs up to and including: the window, in time of the trace."""
SHORTEST_GRACE_MS: Final = 100
QUIET_PERIOD_MS: Final = 5 * MINUTE_MS
"""While nothing happens: standings move by half a permille of a lookback in it."""
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")
_PERMILLE: Final = 1_000


class Scale:
    """Times of the trace as times of the cell, never rounded down to nothing."""

    def __init__(self, speed_permille: int) -> None:
        self.permille = speed_permille

    def length(self, trace_ms: int, least_ms: int = 1) -> int:
        """The time in the cell, rounded down, `least_ms` at least."""
        return max(least_ms, trace_ms * _PERMILLE // self.permille)


def gang(gpus: int, gpus_per_host: int) -> tuple[int, int]:
    """(hosts, GPUs on each): as asked for up to one host, whole hosts above, rounded up (12 on hosts of 8: 2 x 8)."""
    return (1, gpus) if gpus <= gpus_per_host else (-(-gpus // gpus_per_host), gpus_per_host)


def window_ms(gpus: int) -> int:
    """The window of a gang of so many GPUs, in time of the trace."""
    return next(window_ms for up_to, window_ms in WINDOWS if gpus <= up_to)


def plain(text: str) -> str:
    """The text as a part of a name: lower case, all that a name cannot hold one dash, 48 characters at most."""
    return _NOT_A_NAME.sub("-", text.lower()).strip("-")[:48].strip("-")


def names(prefix: str, texts: Iterable[str], nameless: str) -> dict[str, str]:
    """A name for each of the texts, in their order; those that differ in what a name cannot hold get a number."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for text in sorted(set(texts)):
        stem = name = f"{prefix}-{plain(text) or nameless}"
        number = 2
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        found[text] = name
    return found


def leaves(jobs: Sequence[RecordedJob], teams: Mapping[str, BudgetId], weights: str) -> tuple[ChangeBudget, ...]:
    """A leaf for each team below one root, by name: of equal weight, or of its permille of all GPU-time, 1 at least."""
    held: dict[str, int] = dict.fromkeys(teams, 0)
    for job in jobs:
        held[job.team] += job.gpus * job.duration_ms
    whole = sum(held.values()) or 1
    weight = {team: 1 if weights == EQUAL else max(1, _PERMILLE * gpu_ms // whole) for team, gpu_ms in held.items()}
    below = sorted((name, weight[team]) for team, name in teams.items())
    root = ChangeBudget(budget=ROOT_BUDGET, weight=1)
    return (root, *(ChangeBudget(budget=name, weight=share, parent=ROOT_BUDGET) for name, share in below))


def policy(base: Policy, scale: Scale) -> Policy:
    """The policy with the people's times divided by the speed."""
    bounds = tuple(
        WindowBound(
            up_to_gpus=bound.up_to_gpus,
            shortest_ms=scale.length(bound.shortest_ms, 0 if not bound.shortest_ms else 1),
            longest_ms=scale.length(bound.longest_ms),
        )
        for bound in base.window_bounds
    )
    return msgspec.structs.replace(
        base,
        window_bounds=bounds,
        lookback_ms=scale.length(base.lookback_ms),
        entitlement_floor_ms=scale.length(base.entitlement_floor_ms),
        grace_cap_ms=scale.length(base.grace_cap_ms, SHORTEST_GRACE_MS),
        debug_max_window_ms=scale.length(base.debug_max_window_ms),
        debug_max_timeout_ms=scale.length(base.debug_max_timeout_ms),
        non_resumable_cap_ms=scale.length(base.non_resumable_cap_ms),
        quiet_period_ms=scale.length(base.quiet_period_ms, 0),
    )
