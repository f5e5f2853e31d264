"""The order in which answers go out."""

from fairlease.core import feed
from fairlease.explainer.feed import in_turn
from fairlease_schemas.commands import CancelJob
from tests.dsl.cell import Cell


def test_who_sent_one_command_is_answered_before_the_rest_of_anothers_hundreds() -> None:
    here = Cell().hosts(1).budgets(a=1)
    sent = [*["eve"] * 20, "bob", *["eve"] * 3, "bob"]
    here.step("admission", tuple(here.answer(CancelJob(job="job-aaaaaaaaaaaaaaaaaaaa"), who) for who in sent))
    answers = list(feed.answers_of(here.world, here.record(len(here.records))))
    order = [(one.account, one.seq) for one in in_turn(answers)]
    assert order[:5] == [("eve", 1), ("bob", 1), ("eve", 2), ("bob", 2), ("eve", 3)]
    assert [seq for who, seq in order if who == "eve"] == list(range(1, 24))
    assert in_turn([]) == []
