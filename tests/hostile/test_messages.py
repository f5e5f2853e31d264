"""Hostile messages, through the edges of the services that own them and their decisions, and the explainer."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from fairlease.admission.edge import read_submission
from fairlease.agent import service as agent
from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease.core.world import World
from fairlease.explainer.questions import handlers
from fairlease.runtime import edge
from fairlease.runtime.bus import Message
from fairlease.runtime.streams import wanted
from fairlease_schemas import codec, commands, reports
from fairlease_schemas.envelope import Answer, Unreadable
from fairlease_schemas.explain import Trouble
from fairlease_schemas.job import CommandRefused, JobRefused, MessageRefused
from fairlease_schemas.subjects import Subjects
from tests.dsl.cell import Cell
from tests.hostile.corpus import Entry, cost, entries, hidden_in, made
from tests.hostile.counted import CORPUS, Bill
from tests.house.tree import report

SUBJECTS = Subjects("lab")
OWNERS = {
    name: service for table in (commands.OWNERS, reports.OWNERS) for service, names in table.items() for name in names
}
REFUSALS = (CommandRefused, JobRefused, MessageRefused)


@pytest.fixture(scope="module")
def world() -> World:
    """A cell with hosts, a budget, a job that runs and one that waits."""
    cell = Cell().hosts(2).budgets(a=1)
    for name in ("r1", "r2"):
        cell.submit(name, hosts=2, gpus_per_host=8)
    return cell.world


def answered(world: World, to: str, data: bytes) -> tuple[Answer, tuple[Any, ...]]:
    """What the service that owns such a message reads, and the events it would record."""
    _, who, verb = to.split(".")
    stream = SUBJECTS.reports_stream if to.startswith("report") else SUBJECTS.inbox_stream(who)
    subject = SUBJECTS.report(who, verb) if to.startswith("report") else f"fl.lab.cmd.{who}.{verb}"
    message = Message(stream, 7, world.log_time_ms + 1, subject, data)
    said = edge.read_said(message)
    if isinstance(said, commands.SubmitJob):
        said, _ = read_submission(message, said)
    answer = edge.answer_to(SUBJECTS, message, said)
    service = OWNERS.get(verb, "admission")
    decision = RULES[service].decide(world, (answer,))
    if decision is None:
        return answer, ()
    codec.read_record(codec.sealed(record_of(world, service, decision))[1])
    return answer, decision.events


def message_findings(world: World, entry: Entry, bill: Bill) -> Iterator[str]:
    """What is wrong with how a command or a report is taken."""
    data = made(entry)
    stream = SUBJECTS.reports_stream if entry["to"].startswith("report") else SUBJECTS.inbox_stream("ann")
    assert len(data) <= wanted(SUBJECTS, ("ann",))[stream]["max_msg_size"], "the bus would not take it"
    (answer, events), costs = cost(lambda: answered(world, entry["to"], data), bill=bill, name=entry["name"])
    yield from costs
    refusals = [event for event in events if isinstance(event, REFUSALS)]
    if isinstance(answer.said, Unreadable):
        became = "unreadable"
    elif refusals:
        became = "refused"
    else:
        became = "taken" if events else "nothing"
    if became != entry["verdict"]:
        yield f"is {became}: {(events or (answer.said,))[0]}"
        return
    if became == "unreadable" and not (isinstance(answer.said, Unreadable) and entry["says"] in answer.said.error):
        yield f"does not say {entry['says']!r}: {answer.said}"
    told = codec.canonical(msgspec.to_builtins(events)).decode()
    if became != "taken" and (hidden := hidden_in(told)):
        yield f"records {sorted(hidden)}"
    for event in refusals:
        if isinstance(event, MessageRefused):
            continue
        if not event.problems or not all(one.field and one.way_out for one in event.problems):
            yield f"names no field or way out: {event}"


SECRET = "ghp_" + "a1" * 18


@pytest.mark.parametrize(
    ("verb", "body", "path"),
    [
        pytest.param(
            "return-host",
            {"host": "host-001", "checks": [{"name": "memory", "code": 0, "at_ms": 1, "output": f"x {SECRET}"}]},
            "$.checks[0].output",
            id="the output of a check",
        ),
        pytest.param(
            "return-host",
            {"host": "host-001", "checks": [{"name": SECRET, "code": 0, "at_ms": 1}]},
            "$.checks[0].name",
            id="the name of a check",
        ),
        pytest.param("request-drain", {"host": "host-001", "reason": SECRET}, "$.reason", id="why a host drains"),
        pytest.param(
            "request-drain",
            {"host": "host-001", "external_id": f"https://u:{SECRET}@x/1"},
            "$.external_id",
            id="the ticket of a drain",
        ),
        pytest.param(
            "request-drain",
            {"host": "host-001", "reason": "x" * 300 + " " + SECRET},
            "$.reason",
            id="what would be cut off",
        ),
        pytest.param("cordon-host", {"host": "host-001", "reason": SECRET}, "$.reason", id="why a host is cordoned"),
        pytest.param("hold-job", {"job": "job-a", "reason": SECRET}, "$.reason", id="why a job is held"),
        pytest.param("cancel-job", {"job": SECRET}, "$.job", id="a job that is none"),
        pytest.param(
            "change-budget", {"budget": "a", "weight": 1, "reason": SECRET}, "$.reason", id="why a budget changes"
        ),
        pytest.param(
            "change-policy", {"name": "p", "policy": {}, "reason": SECRET}, "$.reason", id="why a policy changes"
        ),
        pytest.param(
            "change-policy", {"name": "p", "policy": {"ranker": SECRET}}, "$.policy.ranker", id="a choice of a policy"
        ),
        pytest.param("change-policy", {"name": SECRET, "policy": {}}, "$.name", id="the name of a policy"),
        pytest.param("cordon-host", {"host": "host-001", SECRET: ""}, "it holds", id="a field that there is not"),
    ],
)
def test_a_secret_in_a_command_is_told_and_in_no_record(
    world: World, verb: str, body: dict[str, object], path: str
) -> None:
    # rule: 1.13
    answer, events = answered(world, f"cmd.ann.{verb}", codec.canonical(body))
    (refused,) = events
    assert isinstance(refused, MessageRefused)
    assert refused.error.startswith(path)
    assert "a GitHub token" in refused.error or "a password in a URL" in refused.error
    assert "(rule 1.13): leave it out" in refused.error
    kept = codec.canonical(msgspec.to_builtins((answer, events))).decode()
    assert SECRET[4:] not in kept


def question_findings(world: World, entry: Entry, bill: Bill) -> Iterator[str]:
    """What is wrong with how the explainer takes a question."""
    data = made(entry)

    async def past(_at: int) -> World:
        return world

    handler = handlers(lambda: world, past)[entry["to"].removeprefix("ask.")]
    raw, costs = cost(lambda: asyncio.run(handler(data)), bill=bill, name=entry["name"])
    yield from costs
    reply = msgspec.json.decode(raw)
    is_trouble = (
        reply.get("kind") == Trouble.__struct_config__.tag or reply.get("type") == Trouble.__struct_config__.tag
    )
    if is_trouble != (entry["verdict"] == "trouble"):
        yield f"is answered {raw[:200]!r}"
    if is_trouble and (not reply["text"] or entry["says"] not in reply["text"]):
        yield f"is told {reply}"


class Deaf:
    """A host that must not hear an order."""

    id = "host-001"

    def __init__(self) -> None:
        self.heard: list[object] = []

    def obey(self, order: object) -> None:
        self.heard.append(order)


def order_findings(entry: Entry, bill: Bill) -> Iterator[str]:
    """What is wrong with how an agent takes an order."""
    data, host = made(entry), Deaf()
    _, costs = cost(
        lambda: agent._obey(host, data),  # type: ignore[arg-type]  # all that is asked of a host
        bill=bill,
        name=entry["name"],
    )
    yield from costs
    if host.heard:
        yield "is obeyed"


def test_messages_are_refused_or_harmless(world: World, record_property: Callable[[str, object], None]) -> None:
    corpus, bill = entries("messages.jsonl"), Bill()
    answered(world, "cmd.ann.submit-job", b'{"type":"submit-job","request_id":"r","contract":{}}')
    findings = []
    for entry in corpus:
        if entry["to"].startswith("ask."):
            found = question_findings(world, entry, bill)
        else:
            found = order_findings(entry, bill) if entry["to"] == "order" else message_findings(world, entry, bill)
        findings += [f"{entry['name']}: {one}" for one in found]
    report(findings)
    record_property(CORPUS, f"{len(corpus)} hostile commands, reports, questions and orders: {bill.told()}")
    assert len(corpus) >= 300
