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
from fairlease_schemas.units import HOUR_MS

RANKER = "budget-window"
FAIL, RESTART = "fail", "restart"
MAX_NUMBER = 10**12
MAX_WINDOW_BOUNDS = 64
AT_LEAST_ONE = ("lookback_ms", "rank_period_ms", "step_limit_ms", "max_grants_per_cycle", "max_classes_per_pool")
AT_LEAST = dict.fromkeys(AT_LEAST_ONE, 1) | {"report_valid_ms": HOUR_MS}
"""A proposal that is stale before anybody can accept it would keep a closed gate closed for ever."""
AT_MOST = {"max_grants_per_cycle": 500, "max_classes_per_pool": 256, "brake_count": KEPT_PREEMPTIONS}
"""What one record can hold (log.md L2), and how many preemptions of a job are remembered (5.7)."""

RULES = {"max_grants_per_cycle": "L2", "max_classes_per_pool": "L2", "brake_count": "5.7"}


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
    if policy.on_resume_refused not in ("", FAIL, RESTART):
        value, limit = policy.on_resume_refused[:80], f"{FAIL} or {RESTART}"
        way_out = f"write {FAIL} or {RESTART}, or leave it out"
        yield Problem(field="policy.on_resume_refused", rule="8.3", value=value, limit=limit, way_out=way_out)
    if policy.change_gate not in ("", REPORTED):
        way_out = f"write {REPORTED}, or leave it out"
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
        least, most = AT_LEAST.get(name, 0), AT_MOST.get(name, MAX_NUMBER)
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
