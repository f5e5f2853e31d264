"""Read models: what people are shown is what the fold holds, and what a rank would say now."""

import pytest

from fairlease.core import explain, feed, view
from fairlease.core.world import World
from fairlease_schemas.commands import (
    CancelJob,
    ChangeBudget,
    ChangeMember,
    CordonHost,
    HoldJob,
    RequestDrain,
    ReturnHost,
    UndrainHost,
)
from fairlease_schemas.envelope import Unreadable
from fairlease_schemas.explain import AsOf, BudgetNode, Counterfactual, ShareRow, WhyReason
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import After, Array, End
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, submitted


def cell(hosts: int = 1) -> Cell:
    return Cell().hosts(hosts).budgets(a=1)


# the queue ------------------------------------------------------------------------------------------


def test_the_queue_shows_running_jobs_by_grant_then_waiting_ones_by_rank_then_backoffs() -> None:
    here = Cell().hosts(1).budgets(a=1, b=1)
    here.submit("a1", gpus_per_host=2)
    failing = here.submit("a2", gpus_per_host=2, max_retries=1)
    here.submit("a3", gpus_per_host=6, settle=False)
    here.submit("b1", "b", gpus_per_host=4)
    here.gone(failing, End.FAILED, 1)
    rows = view.queue(here.world, 10).rows
    names = {job.id: job.request_id for job in here.world.jobs.values()}
    assert [(names[row.job], row.state, row.rank) for row in rows] == [
        ("a1", "granted", None),
        ("b1", "granted", None),
        ("a3", "waiting", 1),
        ("a2", "backoff", None),
    ]
    assert [row.reason for row in rows] == ["", "", "window-overshare", "retry-backoff"]


def test_the_queue_shows_who_does_not_compete_and_counts_them_apart() -> None:
    here = cell()
    first = here.submit("first", gpus_per_host=8)
    after = here.submit("after", after=(After(job=first, when="ok"),))
    held = here.submit("held")
    here.say(HoldJob(job=held))
    found = view.queue(here.world, 10)
    assert (found.running, found.waiting, found.parked) == (1, 0, 2)
    assert [(row.job, row.state, row.reason) for row in found.rows[1:]] == [
        (after, "dependent", "dependency"),
        (held, "held", "job-held"),
    ]
    assert len(view.queue(here.world, 2).rows) == 2


def test_the_queue_reads_the_same_after_a_restart() -> None:
    here = Cell().hosts(1, gpus=4).budgets(a=1, b=9)
    here.submit("first")
    for name in ("a1", "a2", "b1", "b2"):
        here.submit(name, name[0], settle=False)
    here.settle()
    assert view.queue(World.load(here.world.dump()), 10) == view.queue(here.world, 10)


def test_the_queue_is_cut_but_counts_all() -> None:
    here = cell()
    here.submit("full", gpus_per_host=8)
    for n in range(5):
        here.submit(f"r{n}", gpus_per_host=8)
    found = view.queue(here.world, 3)
    assert (found.running, found.waiting, len(found.rows)) == (1, 5, 3)


def test_the_queue_can_be_asked_by_account_and_budget() -> None:
    here = Cell().hosts(2).budgets(a=1, b=1)
    for n, (who, budget) in enumerate((("ann", "a"), ("ann", "b"), ("bob", "a"), ("bob", "b"))):
        here.submit(f"r{n}", budget, who=who, gpus_per_host=8)
    for found in (view.queue(here.world, 9, account="bob"), view.queue(here.world, 9, budget="b")):
        assert found.running + found.waiting == len(found.rows) == 2


# shares and hosts -----------------------------------------------------------------------------------


def test_shares_show_the_numbers_of_the_standing() -> None:
    here = cell()
    here.submit("r1", gpus_per_host=2, min_runtime_ms=HOUR)
    here.submit("r2", gpus_per_host=8)
    here.at(30 * MINUTE)
    (row,) = view.shares(here.world).rows
    assert row == ShareRow(
        budget="a",
        parent="",
        depth=0,
        weight=1,
        pool="h100",
        entitled_gpu_ms=8 * 24 * HOUR,
        used_gpu_ms=2 * 30 * MINUTE,
        promised_gpu_ms=2 * 30 * MINUTE,
        standing_permille=10,
        held_gpus=2,
        waiting_jobs=1,
    )


def test_the_tree_tells_how_each_budget_is_set_and_who_may_what_there() -> None:
    # rule: 1.1 2.9
    here = cell()
    told = ChangeBudget(budget="b", weight=2, order="smallest", max_protected_permille=500, burst_permille=1500)
    here.say(told, "ann")
    here.say(ChangeMember(budget="b", account="zoe", role="member"), "ann")
    here.say(ChangeMember(budget="b", account="*", role="member"), "ann")
    plain, own = view.shares(here.world).nodes
    assert own == BudgetNode(
        budget="b",
        weight=2,
        order="smallest",
        max_protected_permille=500,
        burst_permille=1500,
        leads=("ann",),
        members=("*", "zoe"),
    )
    assert (plain.budget, plain.order, plain.burst_permille) == ("a", "fifo", 0)


def test_a_large_membership_is_cut_and_counted() -> None:
    here = cell()
    here.say(ChangeBudget(budget="b", weight=1), "ann")
    for n in range(view.MAX_ACCOUNTS + 3):
        here.say(ChangeMember(budget="b", account=f"m{n}", role="member"), "ann")
    own = view.shares(here.world).nodes[-1]
    assert (len(own.members), own.more_accounts) == (view.MAX_ACCOUNTS, 3)


def test_hosts_show_what_holds_them() -> None:
    here = cell(2)
    job = here.submit("r1", gpus_per_host=3)
    here.say(CordonHost(host="host-001", reason="fan"))
    first, second = view.hosts_view(here.world).rows
    assert (first.holds, first.attempts, first.free_gpus) == (("cordon (ann): fan",), (attempt_id(job, 1),), 5)
    assert (second.holds, second.attempts, second.free_gpus) == ((), (), 8)


def test_a_job_shows_all_its_attempts() -> None:
    here = cell()
    job = here.submit("r1", max_retries=1)
    here.start(job).at(MINUTE).gone(job, End.FAILED, 4)
    here.at(2 * MINUTE)
    shown = view.job_view(here.world, here.world.jobs[job])
    assert [(a.number, a.end, a.exit_code, a.ended_ms) for a in shown.attempts] == [
        (1, "failed", 4, T0 + MINUTE),
        (2, "", None, None),
    ]
    assert shown.as_of == AsOf(epoch=1, position=len(here.records), log_time_ms=here.world.log_time_ms)


def test_a_job_of_an_array_shows_its_place() -> None:
    # rule: 1.11
    here = cell()
    here.submit("many", gpus_per_host=8, array=Array(count=3))
    jobs = [view.job_view(here.world, job) for job in here.world.jobs.values()]
    assert [(job.array_index, job.array_count) for job in jobs] == [(0, 3), (1, 3), (2, 3)]
    alone = view.job_view(here.world, here.world.jobs[here.submit("alone")])
    assert (alone.array_index, alone.array_count) == (None, 0)


def test_an_attempt_that_was_told_to_leave_says_for_whom() -> None:
    here = Cell().hosts(1).budgets(a=1, b=1)
    idle = here.submit("idle", gpus_per_host=8, min_runtime_ms=0)
    here.start(idle).at(MINUTE)
    claim = here.submit("claim", "b", gpus_per_host=8)
    (attempt,) = view.job_view(here.world, here.world.jobs[idle]).attempts
    assert attempt.stop_for == claim


# why ------------------------------------------------------------------------------------------------


def test_why_says_reason_place_and_what_would_fit() -> None:
    # rule: 9.2 9.4
    here = cell()
    here.submit("half", gpus_per_host=5)
    here.submit("first", gpus_per_host=8)
    job = here.submit("r1", gpus_per_host=4)
    found = explain.why(here.world, here.world.jobs[job])
    assert found.reasons == (
        WhyReason(
            code="capacity",
            since_ms=T0,
            until_ms=None,
            evidence={"pool": "h100", "needed_gpus": 4, "free_gpus": 3},
            positions=(found.reasons[0].positions[0],),
        ),
    )
    assert found.rank == 2
    assert found.counterfactuals == (Counterfactual(change={"gpus_per_host": 3}, start_by_ms=T0),)
    assert found.text.en == (
        f"{job} waits in budget a; it needs 4 GPUs in pool h100, and 3 are free; it is number 2 in line; "
        "with 3 GPUs per host instead of 4: now."
    )


def test_why_in_backoff_says_until_when() -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1", max_retries=1)
    here.gone(job, End.FAILED, 1)
    found = explain.why(here.world, here.world.jobs[job])
    assert [(r.code, r.until_ms) for r in found.reasons] == [("retry-backoff", T0 + 30 * SECOND)]


def test_why_names_for_whom_hosts_are_kept_from_the_first_cycle_on() -> None:
    here = cell()
    here.submit("idle", gpus_per_host=6, min_runtime_ms=0)
    claim = here.submit("claim", gpus_per_host=4, settle=False)
    late = here.submit("late", gpus_per_host=2, min_runtime_ms=HOUR)
    assert f"kept for {claim}" in explain.why(here.world, here.world.jobs[late]).text.en


@pytest.mark.parametrize("end", list(End))
def test_every_end_of_a_job_has_words_in_both_languages(end: End) -> None:
    # rule: 9.4
    here = cell()
    job = here.submit("r1")
    here.gone(job, end, 1)
    text = explain.why(here.world, here.world.jobs[job]).text
    assert job in text.en
    assert job in text.zh


# answers and the feed -------------------------------------------------------------------------------


def outcomes(here: Cell) -> list[tuple[str, str, str]]:
    return [(a.verb, a.outcome, a.state) for a in feed.answers_of(here.world, here.record(len(here.records)))]


def test_commands_of_one_record_are_answered_each_by_its_own_outcome() -> None:
    here = cell()
    here.when(submitted("r1"), submitted("r1"), submitted("r2", "nowhere"), CancelJob(job="job-x"))
    assert outcomes(here) == [
        ("submit-job", "accepted", "waiting"),
        ("submit-job", "repeated", "waiting"),
        ("submit-job", "refused", ""),
        ("cancel-job", "refused", ""),
    ]


def test_a_command_that_found_nothing_to_do_is_told_so() -> None:
    here = cell()
    job = here.submit("r1", min_runtime_ms=HOUR)
    here.when(UndrainHost(host="host-001"))
    assert outcomes(here) == [("undrain-host", "unchanged", "")]
    here.when(ReturnHost(host="host-001"))
    assert outcomes(here) == [("return-host", "unchanged", "")]
    for wanted in ("accepted", "unchanged"):
        here.when(CordonHost(host="host-001"))
        assert outcomes(here) == [("cordon-host", wanted, "")]
    here.when(ReturnHost(host="host-001"))
    assert outcomes(here) == [("return-host", "accepted", "")]
    here.when(CancelJob(job=job))
    assert outcomes(here)[0][:2] == ("cancel-job", "accepted")
    here.gone(job, End.CANCELLED, 143)
    here.when(CancelJob(job=job))
    assert outcomes(here) == [("cancel-job", "unchanged", "cancelled")]


def test_reports_and_timers_are_answered_to_nobody() -> None:
    here = cell()
    job = here.submit("r1")
    here.when(here.run_started(job), who="host-001")
    assert outcomes(here) == []


def test_an_unreadable_command_is_answered_as_refused() -> None:
    here = cell()
    here.step("admission", (here.answer(Unreadable(size=3, sha256="0" * 64, error="no such verb or kind")),))
    assert outcomes(here) == [("", "refused", "")]


def test_the_feed_tells_each_step_of_a_job_in_order() -> None:
    here = cell()
    job = here.submit("r1")
    here.start(job).gone(job, End.FAILED, 3)
    world, told = World(), []
    for position in range(1, len(here.records) + 1):
        record = here.record(position)
        world.apply(record, position)
        told += [(step.event, step.state, step.exit_code) for _, _, step in feed.steps_of(world, record)]
    assert told == [
        ("job-admitted", "waiting", None),
        ("gang-granted", "granted", None),
        ("attempt-started", "running", None),
        ("attempt-ended", "failed", 3),
        ("job-failed", "failed", 3),
    ]


def test_the_feed_tells_a_bot_what_becomes_of_its_drain() -> None:
    # rule: 7.4
    here = cell()
    job = here.submit("r1", gpus_per_host=2, min_runtime_ms=HOUR)
    here.start(job)
    here.say(RequestDrain(host="host-001", reason="fan", external_id="T-1"), who="bot")
    here.gone(job, End.SUCCEEDED, 0)
    here.say(ReturnHost(host="host-001"), who="bot")
    world, told = World(), []
    for position in range(1, len(here.records) + 1):
        record = here.record(position)
        world.apply(record, position)
        for _, news in feed.hosts_of(world, record):
            drain = news.drain
            told.append((news.event, news.holds, (drain.state, drain.left, drain.external_id) if drain else None))
    assert told == [
        ("host-registered", (), None),
        ("drain-planned", (), ("planned", 1, "T-1")),
        ("host-held", ("drain (bot): fan",), ("draining", 1, "T-1")),
        ("drain-completed", ("drain (bot): fan",), ("drained", 0, "T-1")),
        ("host-hold-cleared", (), None),
    ]


def test_a_job_that_finds_four_gpus_on_three_hosts_is_told_what_would_start_now() -> None:
    # rule: 9.1 9.2
    here = cell(3)
    for number, gpus in enumerate((7, 6, 7)):
        here.submit(f"a{number}", gpus_per_host=gpus)
    waiting = here.submit("b1", gpus_per_host=4)
    found = explain.why(here.world, here.world.jobs[waiting])
    assert [reason.code for reason in found.reasons] == ["fragmentation"]
    assert found.counterfactuals == (Counterfactual(change={"gpus_per_host": 2}, start_by_ms=T0),)
    assert "the largest hole is 2 GPUs" in found.text.en
    assert "with 2 GPUs per host instead of 4: now" in found.text.en


def test_a_held_job_says_who_holds_it_and_why() -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1", settle=False)
    here.say(HoldJob(job=job, reason="wait for the new data"))
    found = explain.why(here.world, here.world.jobs[job])
    assert (found.held_by, found.held_for) == ("ann", "wait for the new data")
    assert "is held by ann (wait for the new data)" in found.text.en
    assert view.job_view(here.world, here.world.jobs[job]).held_for == "wait for the new data"


def test_a_waiting_job_is_told_how_many_gpus_are_asked_for_before_it() -> None:
    # rule: 9.2
    here = cell()
    here.submit("full", gpus_per_host=8)
    first, second, third = (here.submit(f"w{gpus}", gpus_per_host=gpus) for gpus in (8, 4, 2))
    places = [explain.why(here.world, here.world.jobs[job]) for job in (first, second, third)]
    assert [(found.rank, found.ahead_gpus) for found in places] == [(1, 0), (2, 8), (3, 12)]
