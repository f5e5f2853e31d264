"""What a policy may say: every number within what a cell can be run by (decisions.md 10.1).

A number that a record or a snapshot could not hold would stop services, so bounds are told here, when a
policy is asked for. All problems are found, not the first.
"""

from collections.abc import Iterator

from fairlease.core.change import REPORTED
from fairlease.core.job import KEPT_PREEMPTIONS
from fairlease_schemas.host import MAX_CHECKS
from fairlease_schemas.ids import is_name
from fairlease_schemas.job import Problem
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.units import DAY_MS, HOUR_MS

RANKER = "budget-window"
ORDERS = ("fifo", "least-attained", "smallest")
FAIL, RESTART = "fail", "restart"
MAX_NUMBER = 10**12
MAX_WINDOW_BOUNDS = 64
LONGEST_MS = 3_660 * DAY_MS
"""Ten years: beyond all that a cell remembers, and far from what a record cannot hold."""
SHORTEST_MS = 100
"""Of what somebody has to do in time: a cycle alone takes some ms."""
OF_ALL = 1_000
"""All of a pool, in permille."""

LIMITS = {
    "lookback_ms": (SHORTEST_MS, LONGEST_MS),
    "entitlement_floor_ms": (0, LONGEST_MS),
    "grace_cap_ms": (0, DAY_MS),
    "stop_margin_ms": (SHORTEST_MS, HOUR_MS),
    "reservation_slack_ms": (0, DAY_MS),
    "debug_max_gpus": (0, 1 << 30),
    "debug_max_window_ms": (0, LONGEST_MS),
    "debug_max_timeout_ms": (0, LONGEST_MS),
    "debug_per_person": (0, 1_000_000),
    "debug_permille": (0, OF_ALL),
    "debug_spare_hosts": (0, 1_000),
    "spare_yield_hosts": (0, 1_000_000),
    "debug_patience_permille": (0, OF_ALL),
    "non_resumable_cap_ms": (0, LONGEST_MS),
    "retry_backoff_ms": (0, 30 * DAY_MS),
    "retry_backoff_cap_ms": (0, 30 * DAY_MS),
    "rank_period_ms": (SHORTEST_MS, DAY_MS),
    "step_limit_ms": (SHORTEST_MS, HOUR_MS),
    "max_grants_per_cycle": (1, 500),
    "max_classes_per_pool": (1, 256),
    "half_life_ms": (0, LONGEST_MS),
    "margin_permille": (0, 1_000_000),
    "licence_window_permille": (0, OF_ALL),
    "due_first_permille": (0, 1_000_000),
    "patience_ms": (0, 30 * DAY_MS),
    "move_gain_ms": (0, 30 * DAY_MS),
    "saving_after_ms": (0, LONGEST_MS),
    "saving_pass_gpu_ms": (0, MAX_NUMBER),
    "promises_per_pool": (0, 1_000),
    "promise_permille": (0, OF_ALL),
    "promise_horizon_ms": (0, LONGEST_MS),
    "promise_gain_ms": (0, LONGEST_MS),
    "brake_count": (0, KEPT_PREEMPTIONS),
    "brake_span_ms": (0, LONGEST_MS),
    "start_limit_ms": (SHORTEST_MS, LONGEST_MS),
    "lease_ms": (SHORTEST_MS, HOUR_MS),
    "lease_margin_ms": (0, HOUR_MS),
    "fault_reserve_ms": (0, DAY_MS),
    "fault_hosts": (1, 1_000),
    "fault_span_ms": (0, LONGEST_MS),
    "max_draining_permille": (0, OF_ALL),
    "breaker_permille": (0, OF_ALL),
    "breaker_span_ms": (0, LONGEST_MS),
    "report_valid_ms": (HOUR_MS, 366 * DAY_MS),
    "report_span_ms": (0, 366 * DAY_MS),
    "quiet_period_ms": (0, DAY_MS),
}
"""The smallest and the largest value of each number that a cell can be run by.

A cycle takes some ms, so one each ms would leave a log no room for anything else; a step must have time to come, an
agent time to renew its lease and to stop what runs. A proposal that is stale before anybody can accept it would keep a
closed gate closed for ever. A record holds so many grants and classes (log.md L2), a job remembers so many preemptions
(5.7).
"""

RULES = {
    "max_grants_per_cycle": "L2",
    "max_classes_per_pool": "L2",
    "rank_period_ms": "L3",
    "step_limit_ms": "L3",
    "brake_count": "5.7",
    "stop_margin_ms": "8.1",
    "lease_ms": "7.6",
}
"""What rules a number beside 10.1."""


def window_bound(policy: Policy, gpus: int) -> WindowBound:
    """The windows that a gang of that size may ask for (1.4); beyond the last bound the last one holds."""
    return next((bound for bound in policy.window_bounds if gpus <= bound.up_to_gpus), policy.window_bounds[-1])


def policy_problems(policy: Policy) -> tuple[Problem, ...]:
    """Every problem of a policy: its choices, then the numbers in the order of the fields, then the windows' bounds."""
    return (*_choices(policy), *_numbers(policy), *_window_bounds(policy.window_bounds))


def _choices(policy: Policy) -> Iterator[Problem]:
    if policy.ranker != RANKER:
        way_out = f"write {RANKER}, or leave it out"
        yield Problem(field="policy.ranker", rule="3.9", value=policy.ranker[:80], limit=RANKER, way_out=way_out)
    if policy.leaf_order not in ORDERS:
        value, limit = policy.leaf_order[:80], ", ".join(ORDERS)
        yield Problem(field="policy.leaf_order", rule="3.2", value=value, limit=limit, way_out="write one of these")
    if policy.on_resume_refused not in ("", FAIL, RESTART):
        value, limit = policy.on_resume_refused[:80], f"{FAIL} or {RESTART}"
        way_out = f"write {FAIL} or {RESTART}, or leave it out"
        yield Problem(field="policy.on_resume_refused", rule="8.3", value=value, limit=limit, way_out=way_out)
    if policy.change_gate not in ("", REPORTED):
        way_out = f"write {REPORTED}, or nothing (`change_gate=`) for no gate"
        yield Problem(
            field="policy.change_gate", rule="10.1", value=policy.change_gate[:80], limit=REPORTED, way_out=way_out
        )
    names = policy.return_checks
    wrong = next((name for place, name in enumerate(names) if not is_name(name) or name in names[:place]), None)
    if wrong is not None or len(names) > MAX_CHECKS:
        value = wrong[:80] if wrong is not None else f"{len(names)} checks"
        limit = f"at most {MAX_CHECKS} names of 1-63 of a-z 0-9 -, each once"
        way_out = "name each check that a host must pass once"
        yield Problem(field="policy.return_checks", rule="7.4", value=value, limit=limit, way_out=way_out)


def _numbers(policy: Policy) -> Iterator[Problem]:
    for name in policy.__struct_fields__:
        value = getattr(policy, name)
        if not isinstance(value, int):
            continue
        least, most = LIMITS[name]
        if not least <= value <= most:
            yield Problem(
                field=f"policy.{name}",
                rule=RULES.get(name, "10.1"),
                value=str(value)[:30],
                limit=f"{least}-{most}",
                way_out="what is left over is the next cycle's"
                if value > most and RULES.get(name) == "L2"
                else _INTEGER,
            )


def _window_bounds(bounds: tuple[WindowBound, ...]) -> Iterator[Problem]:
    """Rule 1.4: gangs by rising size, each with a shortest and a longest window."""
    if not 1 <= len(bounds) <= MAX_WINDOW_BOUNDS:
        yield Problem(
            field="policy.window_bounds",
            rule="1.4",
            value=f"{len(bounds)} bounds",
            limit=f"1-{MAX_WINDOW_BOUNDS} bounds",
            way_out="write one for each size of gang that has windows of its own, or leave them out",
        )
        return
    before = 0
    for place, bound in enumerate(bounds):
        path = f"policy.window_bounds.{place}"
        fields = (
            ("up_to_gpus", bound.up_to_gpus, before + 1, MAX_NUMBER, "let the sizes rise from bound to bound"),
            ("shortest_ms", bound.shortest_ms, 0, MAX_NUMBER, _INTEGER),
            ("longest_ms", bound.longest_ms, max(0, bound.shortest_ms), MAX_NUMBER, "write the shortest or more"),
        )
        for name, value, least, most, way_out in fields:
            if not least <= value <= most:
                limit = f"{least}-{most}" if least <= most else f"0-{most}"
                yield Problem(field=f"{path}.{name}", rule="1.4", value=str(value)[:30], limit=limit, way_out=way_out)
        before = max(before, bound.up_to_gpus)


_INTEGER = "write an integer within the limit"
