"""The numbers of the reference workload; those of `budget-window` are what exploring found (docs/policy.md)."""

from typing import Final

from fairlease.simulator.policies import BUDGET_WINDOW
from fairlease.trace.stated import QUIET_PERIOD_MS
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import MINUTE_MS

HOSTS_PER_SPARE: Final = 100


def lab_numbers_of(policy: str, hosts: int) -> Policy:
    """Those of `budget-window`; a policy of another kind has no lane, and so keeps no host empty for one."""
    return lab_numbers(hosts) if policy == BUDGET_WINDOW else Policy(quiet_period_ms=QUIET_PERIOD_MS)


def lab_numbers(hosts: int) -> Policy:
    """For a cell of so many hosts; a small one keeps none spare."""
    return Policy(
        quiet_period_ms=QUIET_PERIOD_MS,
        debug_spare_hosts=hosts // HOSTS_PER_SPARE,
        spare_yield_hosts=4,
        debug_patience_permille=0,
        licence_window_permille=35,
        due_first_permille=1000,
        leaf_order="least-attained",
        move_gain_ms=40 * MINUTE_MS,
        promise_permille=520,
        promise_horizon_ms=MINUTE_MS,
    )
