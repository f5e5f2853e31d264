"""Every number of a policy has a smallest and a largest value that a cell can be run by."""

import msgspec
import pytest

from fairlease.core.policy_rules import LIMITS, RULES, policy_problems
from fairlease_schemas.policy import Policy

NUMBERS = [field.name for field in msgspec.structs.fields(Policy) if field.type is int]


def test_every_number_has_its_limits_and_nothing_else_has() -> None:
    # rule: 10.1
    assert list(LIMITS) == NUMBERS
    assert set(RULES) <= set(LIMITS)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_refused_right_beyond_its_limits_by_rule_value_and_limit(name: str) -> None:
    # rule: 10.1
    least, most = LIMITS[name]
    assert least <= getattr(Policy(), name) <= most
    assert least < most
    for value in (least, most):
        assert policy_problems(msgspec.structs.replace(Policy(), **{name: value})) == ()
    for value in (least - 1, most + 1):
        (problem,) = policy_problems(msgspec.structs.replace(Policy(), **{name: value}))
        assert (problem.field, problem.value) == (f"policy.{name}", str(value))
        assert (problem.rule, problem.limit) == (RULES.get(name, "10.1"), f"{least}-{most}")
        assert problem.way_out


OF_A_SHARE = ("margin_permille", "licence_window_permille", "due_first_permille")
"""Parts of what a side is entitled to, which may be more than all of it."""


@pytest.mark.parametrize("name", [name for name in NUMBERS if name.endswith("permille") and name not in OF_A_SHARE])
def test_a_part_of_a_pool_is_at_most_all_of_it(name: str) -> None:
    assert LIMITS[name][1] == 1_000
