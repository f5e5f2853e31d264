"""A host is given back with the checks that the policy names, made after what took it out (7.4)."""

from typing import Any

import pytest

from fairlease.core.policy_rules import policy_problems
from fairlease_schemas.commands import CordonHost, RequestDrain, ReturnHost
from fairlease_schemas.envelope import LeasesRead
from fairlease_schemas.host import Check, HostHoldCleared, LeaseLost
from fairlease_schemas.job import CommandRefused
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import HostUp
from fairlease_schemas.units import format_length
from tests.core.bench import cell, hosts_of, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, inventory

NAMED = {"return_checks": ("memory", "nccl")}
HOST = "host-001"


def good(here: Cell, *names: str, **fields: Any) -> tuple[Check, ...]:  # noqa: ANN401 - fields of a check
    """Checks of these names that were made just now and found nothing."""
    return tuple(Check(name=name, **({"code": 0, "at_ms": here.now_ms} | fields)) for name in names)


def drained(here: Cell) -> Cell:
    """The host is empty, and `ops` has drained it for a minute now."""
    here.say(RequestDrain(host=HOST), "ops")
    return here.at(here.now_ms - T0 + MINUTE)


def problems(here: Cell, *checks: Check) -> list[tuple[str, str, str, str]]:
    """What is wrong with a return on these checks."""
    (event,) = here.when(ReturnHost(host=HOST, checks=checks), who="ops").events()
    assert isinstance(event, CommandRefused), event
    assert (event.account, event.verb, {problem.rule for problem in event.problems}) == ("ops", "return-host", {"7.4"})
    assert here.world.fleet.hosts[HOST].holds, "it stays out"
    return [(problem.field, problem.value, problem.limit, problem.way_out) for problem in event.problems]


def test_a_host_is_given_back_with_its_checks_and_the_log_keeps_them() -> None:
    # rule: 7.4
    here = drained(cell(**NAMED))
    checks = (*good(here, "memory", output="all well"), *good(here, "nccl", "extra"))
    here.when(ReturnHost(host=HOST, checks=checks), who="ops").then(
        HostHoldCleared(host=HOST, owner="ops", kind="drain", checks=checks)
    )


def test_where_the_policy_names_no_check_none_is_asked_for() -> None:
    # rule: 7.4
    here = drained(cell())
    here.when(ReturnHost(host=HOST), who="ops").then(HostHoldCleared(host=HOST, owner="ops", kind="drain"))


@pytest.mark.parametrize(("code", "word"), [(2, "2 critical"), (3, "3 unknown")])
@pytest.mark.parametrize("named", [(), ("memory",)])
def test_a_host_that_a_check_finds_bad_stays_out_also_where_the_policy_does_not_name_it(
    named: tuple[str, ...], code: int, word: str
) -> None:
    # rule: 7.4 1.18
    here = drained(cell(return_checks=named))
    checks = (*good(here, "memory"), *good(here, "nccl", code=code))
    told = ("checks.nccl", word, "0 ok or 1 warning", "mend what it found, and make it again")
    assert problems(here, *checks) == [told]


def test_a_warning_of_a_check_that_the_policy_does_not_name_is_kept_for_people_to_read() -> None:
    # rule: 7.4
    here = drained(cell())
    checks = good(here, "nccl", code=1, output="slow link")
    here.when(ReturnHost(host=HOST, checks=checks), who="ops").then(
        HostHoldCleared(host=HOST, owner="ops", kind="drain", checks=checks)
    )


def test_every_check_that_is_missing_or_not_good_is_named() -> None:
    # rule: 7.4 1.18
    here = drained(cell(**NAMED))
    missing = "a check that the policy names", "make it, and hand it in with the return"
    assert problems(here) == [("checks.memory", "", *missing), ("checks.nccl", "", *missing)]
    assert problems(here, *good(here, "memory", code=1), *good(here, "nccl", code=3)) == [
        ("checks.memory", "1 warning", "0 ok", "mend what it found, and make it again"),
        ("checks.nccl", "3 unknown", "0 ok", "mend what it found, and make it again"),
    ]


@pytest.mark.parametrize(("offset_ms", "is_new"), [(-1, False), (0, False), (1, True)])
def test_a_check_counts_when_it_was_made_after_the_drain_was_asked_for(offset_ms: int, is_new: bool) -> None:
    # rule: 7.4
    here = cell(return_checks=("memory",))
    asked_ms = here.now_ms
    drained(here)
    checks = good(here, "memory", at_ms=asked_ms + offset_ms)
    if is_new:
        here.when(ReturnHost(host=HOST, checks=checks), who="ops").then(
            HostHoldCleared(host=HOST, owner="ops", kind="drain", checks=checks)
        )
        return
    limit = "made after the request of its drain"
    value = f"{format_length(-offset_ms)} before the request of its drain"
    assert problems(here, *checks) == [("checks.memory", value, limit, "make it again")]


def lose(here: Cell) -> int:
    """The host falls silent until its lease is lost, and is heard again; when it was lost, in log time."""
    silent_ms = here.now_ms
    here.now_ms += 3 * MINUTE
    said = LeasesRead(due_ms=here.now_ms, renewed={HOST: silent_ms})
    events = here.step("health", (here.answer(said, "health", "FL_LAB_TIMERS"),))
    assert any(isinstance(event, LeaseLost) for event in events)
    lost_ms = here.now_ms
    here.now_ms += SECOND
    said = LeasesRead(due_ms=here.now_ms, renewed={HOST: here.now_ms})
    here.step("health", (here.answer(said, "health", "FL_LAB_TIMERS"),))
    here.settle()
    return lost_ms


def test_a_check_from_before_the_newest_fault_does_not_count() -> None:
    # rule: 7.4 7.6
    here = cell(return_checks=("memory",))
    whole(here, "run")
    here.say(RequestDrain(host=HOST), "ops")
    lost_ms = lose(here)
    assert here.world.fleet.hosts[HOST].fault_ms == lost_ms
    old = good(here, "memory", at_ms=lost_ms)
    limit, value = "made after its newest fault", "0s before its newest fault"
    assert problems(here, *old) == [("checks.memory", value, limit, "make it again")]
    new = good(here, "memory", at_ms=lost_ms + 1)
    here.when(ReturnHost(host=HOST, checks=new), who="ops").then(
        HostHoldCleared(host=HOST, owner="ops", kind="drain", checks=new)
    )


def test_a_fault_is_remembered_when_the_host_registers_anew() -> None:
    # rule: 7.4
    here = cell(return_checks=("memory",))
    whole(here, "run")
    lost_ms = lose(here)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(1)), HOST)
    assert here.world.fleet.hosts[HOST].fault_ms == lost_ms


def test_a_check_that_was_not_made_yet_proves_nothing() -> None:
    # rule: 7.4
    here = drained(cell(return_checks=("memory",)))
    way_out = "set the clock of who made it, and make it again"
    assert problems(here, *good(here, "memory", at_ms=here.now_ms + MINUTE + 1)) == [
        ("checks.memory", "1m1ms ahead of the log", "made by now", way_out)
    ]
    here.when(ReturnHost(host=HOST, checks=good(here, "memory", at_ms=here.now_ms + MINUTE)), who="ops")
    assert here.world.fleet.hosts[HOST].holds == ()


def test_a_cordon_is_taken_back_with_checks_too() -> None:
    # rule: 7.4 7.1
    here = cell(return_checks=("memory",))
    here.say(CordonHost(host=HOST, reason="strange noise"), "ops")
    assert [field for field, *_ in problems(here)] == ["checks.memory"]
    job = whole(here, "run")
    assert here.phase(job) == "waiting"
    here.say(ReturnHost(host=HOST, checks=good(here, "memory")), "ops")
    assert hosts_of(here, job) == (HOST,)


def test_who_does_not_own_the_hold_is_told_so_and_not_of_checks() -> None:
    # rule: 7.4 7.1
    here = drained(cell(**NAMED))
    (event,) = here.when(ReturnHost(host=HOST), who="bob").events()
    assert isinstance(event, CommandRefused)
    assert [problem.rule for problem in event.problems] == ["7.1"]


def test_a_host_that_nobody_holds_is_returned_already() -> None:
    # rule: 7.4
    here = cell(**NAMED)
    here.when(ReturnHost(host=HOST), who="ops").then()


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        pytest.param(
            [{"name": "No such Name"}],
            ("checks.name", "No such Name", "1-63 of a-z 0-9 -", "give the check such a name"),
            id="a name that is none",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "a"}],
            ("checks.a", "twice", "each check once", "leave all but the last out"),
            id="one twice",
        ),
        pytest.param(
            [{"name": "a", "code": 4}],
            ("checks.a", "4", "0-3", "let it end with 0 ok, 1 warning, 2 critical, 3 unknown"),
            id="a code that is none",
        ),
        pytest.param(
            [{"name": "a", "output": "x" * 201}],
            ("checks.a", "201 characters", "200 characters", "keep its last line"),
            id="an endless output",
        ),
        pytest.param(
            [{"name": f"c{n}"} for n in range(17)],
            ("checks", "17 checks", "at most 16", "leave out what nobody asks for"),
            id="very many",
        ),
    ],
)
def test_what_is_no_check_is_refused_also_where_none_is_asked_for(
    checks: list[dict[str, Any]], told: tuple[str, ...]
) -> None:
    # rule: 7.4 1.18
    here = drained(cell())
    made = [Check(**({"code": 0, "at_ms": here.now_ms} | fields)) for fields in checks]
    assert problems(here, *made) == [told]


@pytest.mark.parametrize(
    ("names", "value"),
    [
        pytest.param(("memory", "nccl"), None, id="names, each once"),
        pytest.param(("memory", "memory"), "memory", id="one twice"),
        pytest.param(("No",), "No", id="no name"),
        pytest.param(tuple(f"c{n}" for n in range(17)), "17 checks", id="too many"),
    ],
)
def test_a_policy_names_a_few_checks_each_once(names: tuple[str, ...], value: str | None) -> None:
    # rule: 7.4 10.1
    found = [(problem.field, problem.rule, problem.value) for problem in policy_problems(Policy(return_checks=names))]
    assert found == ([] if value is None else [("policy.return_checks", "7.4", value)])


def test_a_later_drain_asks_for_checks_that_are_newer_still() -> None:
    # rule: 7.4 7.2
    here = drained(cell(return_checks=("memory",)))
    checks = good(here, "memory")
    here.say(ReturnHost(host=HOST, checks=checks), "ops")
    here.at(HOUR)
    here.say(RequestDrain(host=HOST), "ops")
    here.at(2 * HOUR)
    assert [limit for _, _, limit, _ in problems(here, *checks)] == ["made after the request of its drain"]
