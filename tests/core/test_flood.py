"""Many refusals of one account in one record are one event; each message is answered all the same."""

from fairlease.core import feed
from fairlease.core.flood import MAX_TOLD
from fairlease_schemas.commands import CancelJob, ChangeMember, CordonHost
from fairlease_schemas.envelope import Answer, Misshapen, Said, Unreadable
from fairlease_schemas.job import CommandRefused, JobRefused, MessageRefused, Problem, RefusalsGathered
from tests.dsl.cell import Cell, admitted, submitted

NOBODYS = "job-aaaaaaaaaaaaaaaaaaaa"
GARBAGE = Unreadable(size=3, sha256="ab" * 32, error="no JSON")


def said(here: Cell, *what: Said, who: str = "ann") -> tuple[Answer, ...]:
    return tuple(here.answer(one, who) for one in what)


def test_a_few_refusals_are_told_one_by_one() -> None:
    here = Cell().hosts(1).budgets(a=1)
    events = here.step("admission", said(here, *[GARBAGE] * MAX_TOLD))
    assert [type(event) for event in events] == [MessageRefused] * MAX_TOLD


def test_more_are_one_event_and_what_others_sent_is_told_as_ever() -> None:
    here = Cell().hosts(1).budgets(a=1)
    flood = said(here, *[CancelJob(job=NOBODYS), GARBAGE] * 4, submitted("r1"), GARBAGE, who="eve")
    bob = said(here, CancelJob(job=NOBODYS), who="bob")
    events = here.step("admission", (*flood, *bob))
    problem = Problem(
        field="job",
        rule="1.1",
        value=NOBODYS,
        limit="a job of this account, or of a budget it leads",
        way_out="see `fairlease queue`",
    )
    assert events == [
        admitted("r1", who="eve"),
        CommandRefused(account="bob", verb="cancel-job", seq=1, problems=(problem,)),
        RefusalsGathered(
            account="eve", stream="FL_LAB_INBOX_eve", seqs=(1, 2, 3, 4, 5, 6, 7, 8, 10), problems=(problem,)
        ),
    ]
    told = list(feed.answers_of(here.world, here.record(len(here.records))))
    assert [(one.account, one.seq, one.outcome) for one in told] == [
        *(("eve", seq, "refused") for seq in range(1, 9)),
        ("eve", 9, "accepted"),
        ("eve", 10, "refused"),
        ("bob", 1, "refused"),
    ]
    assert [one.rule for one in told[1].problems] == ["L2", "1.1"]
    assert told[1].problems[0].value == "one of 9 messages that were refused at a time"


def test_every_service_gathers_and_every_kind_of_refusal() -> None:
    here = Cell().hosts(1).budgets(a=1)
    for service, one in (
        ("admission", Misshapen(budget="a", request_id="x", problems=(Problem(field="spec", rule="1.4"),))),
        ("ledger", ChangeMember(budget="none", account="bob", role="member")),
        ("health", CordonHost(host="host-none")),
    ):
        (event,) = here.step(service, said(here, *[one] * (MAX_TOLD + 1)))
        assert isinstance(event, RefusalsGathered), service
        assert len(event.seqs) == MAX_TOLD + 1


def test_what_agents_report_is_told_one_by_one() -> None:
    here = Cell().hosts(1)
    answers = tuple(here.answer(GARBAGE, "host-001", "FL_LAB_REPORTS") for _ in range(MAX_TOLD + 1))
    assert [type(event) for event in here.step("admission", answers)] == [MessageRefused] * (MAX_TOLD + 1)


def test_refusals_of_jobs_keep_their_ids_free() -> None:
    here = Cell().hosts(1).budgets(a=1)
    refused = said(here, *(submitted(f"x{n}", "nowhere") for n in range(MAX_TOLD + 1)))
    (event,) = here.step("admission", refused)
    assert not isinstance(event, JobRefused)
    here.when(submitted("x1")).then(admitted("x1"))
