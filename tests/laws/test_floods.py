"""Refusals that are told together: every message has the answer that it would have alone, and a record stays short."""

from collections import Counter
from typing import NamedTuple

from hypothesis import strategies as st

from fairlease.core import feed
from fairlease.core.flood import MAX_TOLD, gathered, refused
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangeMember, CordonHost, HoldJob
from fairlease_schemas.envelope import Answer, Event, Misshapen, Said, Unreadable
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import CommandRefused, JobRefused, MessageRefused, Problem, RefusalsGathered
from fairlease_schemas.reports import RunReady
from tests.dsl.cell import Cell, submitted
from tests.laws.examine import at_length, examine
from tests.naive import gathering

WHO = ("ann", "bob", "eve")
GARBAGE = Unreadable(size=3, sha256="ab" * 32, error="no JSON")
MISSHAPEN = Misshapen(budget="a", request_id="x", problems=(Problem(field="spec", rule="1.4"),))
SAID: dict[str, tuple[Said, ...]] = {
    "admission": (
        *(submitted(f"r{number}") for number in range(3)),
        submitted("r0", hosts=2, gpus_per_host=8),
        submitted("r1", "nowhere"),
        CancelJob(job="job-aaaaaaaaaaaaaaaaaaaa"),
        CancelJob(job=job_id("ann", "a", "r0")),
        HoldJob(job=job_id("bob", "a", "r1")),
        MISSHAPEN,
        GARBAGE,
    ),
    "ledger": (
        ChangeBudget(budget="b", weight=1),
        ChangeBudget(budget="a", weight=2, parent="none"),
        ChangeMember(budget="none", account="bob", role="member"),
        GARBAGE,
    ),
    "health": (CordonHost(host="host-001"), CordonHost(host="host-none"), GARBAGE),
}


class Sent(NamedTuple):
    """Messages of a few accounts that one service decides together: (who, which of what may be said, how often)."""

    service: str
    messages: list[tuple[str, int, int]]


TIMES = st.integers(1, 12)
SENT = st.sampled_from(sorted(SAID)).flatmap(
    lambda service: st.builds(
        Sent,
        st.just(service),
        st.lists(
            st.tuples(st.sampled_from(WHO), st.integers(0, len(SAID[service]) - 1), TIMES), min_size=1, max_size=12
        ),
    )
)


def answers_to(cell: Cell, sent: Sent) -> list[Answer]:
    """Each account's in the order of its inbox."""
    return [cell.answer(SAID[sent.service][which], who) for who, which, times in sent.messages for _ in range(times)]


def told_in(cell: Cell, after: int) -> list[tuple[str, int, bool]]:
    """What each sender is told by the records behind that one: who, which message, whether it is refused."""
    records = [cell.record(position) for position in range(after + 1, len(cell.records) + 1)]
    return sorted(
        (one.account, one.seq, one.outcome == "refused") for rec in records for one in feed.answers_of(cell.world, rec)
    )


@at_length
def test_every_message_is_answered_as_it_would_be_alone(examples: int) -> None:
    seen: Counter[str] = Counter()

    def law(sent: Sent) -> None:
        together, alone = (Cell().hosts(1).budgets(a=1) for _ in range(2))
        before = len(together.records)
        assert before == len(alone.records)
        events = together.step(sent.service, tuple(answers_to(together, sent)))
        for answer in answers_to(alone, sent):
            alone.step(sent.service, (answer,))
        assert told_in(together, before) == told_in(alone, before)
        assert list(together.world.jobs) == list(alone.world.jobs)
        told = Counter(stream for stream, found in _refused(together, events).items() for _ in found)
        assert all(count <= MAX_TOLD for count in told.values()), told
        seen.update(type(event).__name__ for event in events)

    examine(law, SENT, examples)
    print(dict(seen))
    assert seen["RefusalsGathered"] > examples // 20, seen


def _refused(cell: Cell, events: list[Event]) -> dict[str, dict[int, Answer]]:
    return refused(cell.record(len(cell.records)).answers, events)


class Mixed(NamedTuple):
    """Messages of a sender in a stream, what kinds of events follow each, and how many they are."""

    messages: list[tuple[str, str, list[str], int]]


_EVENTS = st.lists(st.sampled_from(("command", "job", "message", "report", "other")), max_size=2)
_STREAMS = st.sampled_from(("FL_LAB_INBOX_", "FL_LAB_INBOX_", "FL_LAB_REPORTS"))
MIXED = st.builds(Mixed, st.lists(st.tuples(st.sampled_from(WHO[:2]), _STREAMS, _EVENTS, TIMES), max_size=12))


def made(mixed: Mixed) -> tuple[list[Answer], list[Event]]:
    answers: list[Answer] = []
    events: list[Event] = []
    each = [(who, stream, kinds) for who, stream, kinds, times in mixed.messages for _ in range(times)]
    for seq, (who, stream, kinds) in enumerate(each, 1):
        name = stream + who if stream.endswith("_") else stream
        answers.append(Answer(stream=name, seq=seq, time_ms=seq, who=who, said=GARBAGE))
        problem = Problem(field=f"f{seq}", rule="1.4")
        kind_of: dict[str, Event] = {
            "command": CommandRefused(account=who, verb="cancel-job", seq=seq, problems=(problem,)),
            "job": JobRefused(job=f"job-{seq}", account=who, seq=seq, problems=(problem,)),
            "message": MessageRefused(stream=name, seq=seq, size=3, sha256="ab" * 32, error="no JSON"),
            "report": CommandRefused(account=who, verb=RunReady.__struct_config__.tag, seq=seq, problems=(problem,)),  # type: ignore[arg-type]  # a tag is text
            "other": RefusalsGathered(account="none", stream="FL_LAB_INBOX_none", seqs=(seq,), problems=(problem,)),
        }
        events += [kind_of[kind] for kind in kinds]
    return answers, events


@at_length
def test_refusals_are_told_together_as_the_slow_model_has_it(examples: int) -> None:
    seen = 0

    def law(mixed: Mixed) -> None:
        nonlocal seen
        answers, events = made(mixed)
        found = list(gathered(answers, events))
        assert found == gathering.told(answers, events)
        seen += found != events

    examine(law, MIXED, examples)
    print(f"{seen} of {examples} were told together")
    assert seen > examples // 20
