"""The thrash brake: preempted too often is exempt for a while, and an exemption is a window everywhere (5.7)."""

import pytest

from fairlease.core.departures import exempt_until_ms, needs_ms, protected_for_ms, protected_until_ms
from fairlease.core.fairshare.standing import standings
from fairlease.core.job import Job
from fairlease_schemas.envelope import Address
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Reason, ReasonBegan
from tests.core.bench import (
    GRACE,
    MARGIN,
    cell,
    change,
    evictions,
    idle,
    left,
    names,
    promises,
    reasons,
    victims,
    whole,
)
from tests.dsl.cell import DAY, HOUR, MINUTE, T0, Cell, request

BRAKE = {"brake_count": 1, "brake_span_ms": 3 * HOUR, "margin_permille": 0}
"""One preemption is enough, and it holds for three hours."""


def job(*preemptions_ms: int, window_ms: int = HOUR) -> Job:
    return Job(
        id="job-a",
        account="ann",
        budget="a",
        request_id="r",
        digest="",
        request=request(min_runtime_ms=window_ms),
        admitted=Address(1, 1, 0),
        submitted_ms=0,
        preemptions_ms=preemptions_ms,
    )


@pytest.mark.parametrize(
    ("hours", "until"),
    [
        pytest.param((), 0, id="never preempted"),
        pytest.param((1, 2, 3), 0, id="three times"),
        pytest.param((1, 2, 3, 4), 25, id="four times: until a day after the first"),
        pytest.param((0, 8, 16, 24), 24, id="the fourth exactly a day after the first: until now"),
        pytest.param((0, 8, 16, 25), 0, id="the fourth an hour too late"),
        pytest.param((0, 23, 24, 25, 26), 47, id="five: the last four count"),
        pytest.param((0, 1, 2, 3, 30), 0, id="the brake of last night is over"),
    ],
)
def test_four_preemptions_in_a_day_exempt_until_a_day_after_the_first(hours: tuple[int, ...], until: int) -> None:
    # rule: 5.7
    assert exempt_until_ms(Policy(), job(*[hour * HOUR for hour in hours])) == until * HOUR


def test_the_day_is_counted_to_the_millisecond() -> None:
    # rule: 5.7
    assert exempt_until_ms(Policy(), job(7, 8, 9, 7 + DAY)) == 7 + DAY
    assert exempt_until_ms(Policy(), job(7, 8, 9, 8 + DAY)) == 0


def test_idle_work_has_no_brake() -> None:
    # rule: 5.7
    assert exempt_until_ms(Policy(), job(1, 2, 3, 4, window_ms=0)) == 0


def test_a_policy_without_a_brake_exempts_nobody() -> None:
    # rule: 5.7
    assert exempt_until_ms(Policy(brake_count=0), job(1, 2, 3, 4)) == 0


def test_what_would_be_granted_now_is_protected_for_the_longer_of_window_and_exemption() -> None:
    # rule: 5.7 6.3
    braked = job(1, 2, 3, 4, window_ms=HOUR)
    assert protected_for_ms(Policy(), braked, DAY) == HOUR
    assert protected_for_ms(Policy(), braked, 2 * HOUR) == DAY + 1 - 2 * HOUR
    assert needs_ms(Policy(), braked, 2 * HOUR) == DAY + 1 - 2 * HOUR + GRACE + MARGIN


# stories ----------------------------------------------------------------------------------------------


def braked(hosts: int = 1, **numbers: object) -> tuple[Cell, str]:
    """A job of `a` was preempted at one hour and runs again since 70 minutes, exempt until four hours."""
    here = cell(hosts, **(BRAKE | {"promises_per_pool": 0} | numbers))
    for n in range(1, hosts):
        whole(here, f"other{n}", min_runtime_ms=4 * HOUR)
    running = whole(here, "run", min_runtime_ms=HOUR)
    here.at(HOUR)
    claim = whole(here, "first", "b", min_runtime_ms=15 * MINUTE)
    assert victims(here) == [running]
    left(here, running).at(70 * MINUTE)
    here.gone(claim)
    attempt = here.world.jobs[running].live
    assert attempt is not None
    assert protected_until_ms(here.world.policy, here.world.jobs[running], attempt) == T0 + 4 * HOUR  # type: ignore[arg-type] # there is one
    return here, running


def test_an_exempt_job_is_not_evicted_though_it_is_past_its_window() -> None:
    # rule: 5.7 5.1
    here, running = braked()
    here.at(3 * HOUR)
    whole(here, "claim", "b")
    here.at(4 * HOUR - 1)
    assert len(evictions(here)) == 1
    here.at(4 * HOUR)
    assert victims(here) == [running, running]


def test_the_reason_is_the_brake_where_exemptions_alone_stand_in_the_way_and_until_when() -> None:
    # rule: 5.7 9.1
    here, _ = braked()
    here.at(3 * HOUR)
    whole(here, "claim", "b")
    assert reasons(here) == {"b/h100/1x8/1800000ms": Reason.THRASH_BRAKE}
    began = here.events(ReasonBegan)[-1]
    assert isinstance(began, ReasonBegan)
    assert began.evidence.for_ms == HOUR + GRACE + MARGIN


def test_where_the_window_outlasts_the_exemption_it_is_the_window() -> None:
    # rule: 5.7 9.1
    here = cell(**(BRAKE | {"promises_per_pool": 0}))
    running = whole(here, "run", min_runtime_ms=3 * HOUR)
    here.at(3 * HOUR)
    claim = whole(here, "first", "b", min_runtime_ms=15 * MINUTE)
    left(here, running).at(3 * HOUR + 10 * MINUTE)
    here.gone(claim)
    whole(here, "claim", "b")
    assert reasons(here) == {"b/h100/1x8/1800000ms": Reason.PROTECTED_WINDOWS}


def test_the_rest_of_the_exemption_counts_as_promised() -> None:
    # rule: 5.7 2.5
    here, _ = braked()
    found = {n.budget: n.promised_gpu_ms for n in standings(here.world, "h100", T0 + 3 * HOUR)}
    assert found["a"] == 8 * HOUR


def test_the_calendar_knows_the_exemption() -> None:
    # rule: 5.7 6.1
    here, running = braked(promises_per_pool=1)
    here.at(3 * HOUR)
    claim = whole(here, "claim", "b")
    assert promises(here) == {claim: (names(1), 4 * HOUR + GRACE + MARGIN)}
    here.at(4 * HOUR)
    assert victims(here) == [running, running]


def test_an_exempt_job_counts_against_the_cap_of_protected_gpus() -> None:
    # rule: 5.7 2.9
    here, _ = braked(2)
    change(here, "a", max_protected_permille=1000)
    here.at(3 * HOUR)
    here.gone(next(job for job in here.world.jobs if here.world.jobs[job].request_id == "other1"))
    late = whole(here, "late", "a")
    assert (here.phase(late), list(reasons(here).values())) == ("waiting", [Reason.PROTECTED_CAP])
    here.at(4 * HOUR)
    assert here.phase(late) == "granted"


def test_a_preemption_of_idle_work_counts_for_nobody() -> None:
    # rule: 5.7
    here = cell(**BRAKE)
    spare = idle(here, "spare")
    whole(here, "claim", "b")
    assert here.world.jobs[spare].preemptions_ms == ()
