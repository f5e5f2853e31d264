"""Duplicated, late, false and malformed messages: answered, and nothing else comes of them."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from tests.live.cell import Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Ears, Job
from tests.live.journal import read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSALS = frozenset(("message-refused", "command-refused", "job-refused", "refusals-gathered"))
JOB = b'"job-aaaaaaaaaaaaaaaaaaaa"'
DEEP = b"[" * 20_000 + b"]" * 20_000
MALFORMED = {
    "nothing": b"",
    "not JSON": b"not JSON",
    "half of an object": b'{"job": "job-a',
    "bad UTF-8": b'{"job": "\xff\xfe"}',
    "half of a surrogate pair": b'{"job": "\\ud800"}',
    "a byte order mark": b"\xef\xbb\xbf" + b'{"job": ' + JOB + b"}",
    "20,000 brackets": DEEP,
    "20,000 brackets in a field": b'{"job": ' + DEEP + b"}",
    "the same key twice": b'{"job": ' + JOB + b', "job": ' + JOB + b"}",
    "an integer of 4,000 digits": b'{"job": ' + b"9" * 4_000 + b"}",
    "an integer beyond 64 bits": b'{"job": 36893488147419103232}',
    "not a number": b'{"job": NaN}',
    "infinity": b'{"job": -Infinity}',
    "a float too large": b'{"job": 1e999}',
    "null": b"null",
    "a list": b"[]",
    "another type": b'{"job": 7}',
    "an unknown field": b'{"job": ' + JOB + b', "force": true}',
    "a field missing": b"{}",
    "text that is not in normal form C": '{"job": "job-e\u0301"}'.encode(),
    "60 KiB of text": b'{"job": "' + b"x" * 60_000,
}
"""Bodies that no verb and no kind of report can take, each for a reason of its own."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("messages") / "cell") as cell:
        yield cell


async def _refusal(cell: Cell, stream: str, seq: int) -> dict[str, Any]:
    """The event that refuses this message."""

    async def found() -> list[dict[str, Any]]:
        await cell.journal.read()
        events = cell.journal.events("message-refused")
        return [event for event in events if (event["stream"], event["seq"]) == (stream, seq)]

    (event,) = await eventually(found, f"the refusal of {stream} {seq}")
    return dict(event)


async def _said_again(cell: Cell) -> list[dict[str, Any]]:
    """Stores every command and report that was ever sent once more, byte for byte; the events that come of it."""
    before = await cell.journal.read()
    inboxes = [cell.subjects.inbox_stream(account) for account in ("local", "ci")]
    for stream in (*inboxes, cell.subjects.reports_stream):
        for message in await read_stream(cell.client, stream):
            await cell.publish(message.subject, message.data)
    # One more command of each owner behind them: when it is answered, so is all before it.
    for verb, body in (("cancel-job", {"job": "job-x"}), ("return-host", {"host": "no"}), ("change-budget", {})):
        await cell.answered(verb, body)
    await eventually(cell.court.is_everything_answered, "every repeated message is answered")
    await cell.journal.read()
    return [event for record in cell.journal.records[before:] for event in record["events"]]


async def _is_all_charged(cell: Cell) -> bool:
    """Whether every attempt that ended is charged by now: the ledger comes behind whoever ended it."""
    await cell.journal.read()
    told = [event["type"] for record in cell.journal.records for event in record["events"]]
    return told.count("attempt-ended") == told.count("attempt-charged")


async def test_everything_said_again_changes_nothing(cell: Cell) -> None:
    await cell.submit(Job("once"))
    await cell.submit(Job("gang", hosts=2, gpus=8, account="ci"))
    await cell.submit(Job("fails", script="exit 3", end="job-failed", code=3))
    retried = Job("retried", script='[ "$FAIRLEASE_ATTEMPT_NUMBER" = 2 ] && exec sleep 600; exit 3', max_retries=1)
    running = await cell.submit(retried._replace(end="job-cancelled"))
    await cell.event(running, "attempt-started", count=2)
    await eventually(lambda: _is_all_charged(cell), "what ended is charged")
    events = await _said_again(cell)
    assert {event["type"] for event in events} <= REFUSALS | {"cycle-ranked", "cycle-placed", "cycle-closed"}
    assert (await cell.ask("explainer", "job", {"job": running}))["state"] == "running"
    await cell.cancel(running)
    await cell.over()
    events = await _said_again(cell)
    assert {event["type"] for event in events} <= REFUSALS
    await cell.judge()


async def test_a_report_that_is_not_the_hosts_own_or_not_of_this_grant_changes_nothing(cell: Cell) -> None:
    job = await cell.submit(Job("reported", script="exec sleep 600", end="job-cancelled"))
    grant = await cell.event(job, "gang-granted")
    await cell.event(job, "attempt-started")
    attempt, host = grant["attempt"], grant["parts"][0]["host"]
    facts = json.loads((cell.home / "agent" / host / "runs" / attempt / "run.json").read_bytes())
    gone = {"attempt": attempt, "token": facts["token"], "end": "succeeded", "exit_code": 0}
    other = next(name for name in ("host-001", "host-002") if name != host)
    for sender, body in (
        (other, gone),
        ("host-999", gone),
        (host, gone | {"token": "1-1-0"}),
        (host, gone | {"attempt": f"{job}-a2"}),
        (host, gone | {"attempt": "job-unknown-a1"}),
    ):
        await cell.publish(cell.subjects.report(sender, "run-gone"), json.dumps(body).encode())
    await eventually(cell.court.is_everything_answered, "the false reports are answered")
    assert cell.journal.of_job(job, "part-gone", "attempt-ended") == []
    assert (await cell.ask("explainer", "job", {"job": job}))["state"] == "running"
    await cell.cancel(job)
    await cell.over()
    await cell.judge()


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_message_is_refused_and_the_next_good_one_is_served(cell: Cell, what: str) -> None:
    body = MALFORMED[what]
    sent = [
        ("command", await cell.send(verb, body))
        for verb in ("submit-job", "cancel-job", "change-budget", "change-policy", "cordon-host", "return-host")
    ]
    sent += [
        ("report", await cell.publish(cell.subjects.report("host-001", kind), body))
        for kind in ("host-up", "run-started", "run-gone")
    ]
    for source, seq in sent:
        is_command = source == "command"
        stream = cell.subjects.inbox_stream("local") if is_command else cell.subjects.reports_stream
        refusal = await _refusal(cell, stream, seq)
        assert (refusal["size"], refusal["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        assert refusal["error"].isprintable()
        assert len(refusal["error"]) <= 200
        if is_command:
            answer = await cell.answer("local", seq)
            assert answer["outcome"] == "refused"
            assert answer["problems"], answer
    assert (await cell.answered("change-budget", {"budget": "team-a", "weight": 1}))["outcome"] == "unchanged"


async def test_after_all_of_them_a_job_still_runs(cell: Cell) -> None:
    await cell.submit(Job("after-malformed"))
    await cell.over()
    await cell.judge()


@pytest.mark.parametrize(
    ("what", "contract"),
    [
        ("a key twice", b'{"apiVersion":"fairlease/v1","kind":"Job","kind":"Job","spec":{}}'),
        ("not a number", b'{"apiVersion":"fairlease/v1","kind":"Job","spec":{"hosts":NaN}}'),
        (
            "an integer of 400 digits",
            b'{"apiVersion":"fairlease/v1","kind":"Job","spec":{"hosts":' + b"9" * 400 + b"}}",
        ),
        ("1,000 brackets", b"[" * 1_000 + b"]" * 1_000),
        ("no object", b"7"),
        ("nothing in it", b"{}"),
        ("a control character", b'{"apiVersion":"fairlease/v1","kind":"Job","metadata":{"name":"\\u0007"},"spec":{}}'),
    ],
)
async def test_a_malformed_contract_is_refused_with_a_problem(cell: Cell, what: str, contract: bytes) -> None:
    body = b'{"request_id": "shape", "contract": ' + contract + b"}"
    answer = await cell.answered("submit-job", body)
    assert answer["outcome"] == "refused"
    assert answer["problems"], answer


async def test_another_body_under_a_used_request_id_is_refused_and_the_first_job_goes_on(cell: Cell) -> None:
    first = Job("twice", script="sleep 1; exit 4", end="job-failed", code=4)
    await cell.submit(first)
    other = first._replace(script="exit 0")
    answer = await cell.answered("submit-job", cell.body(other))
    assert (answer["outcome"], [p["rule"] for p in answer["problems"]]) == ("refused", ["1.14"])
    again = await cell.answered("submit-job", cell.body(first))
    assert (again["outcome"], again["job"]) == ("repeated", first.id)
    # The id is of account, budget and request id: each of these is another job.
    await cell.submit(first._replace(account="ci"))
    await cell.submit(first._replace(budget="team-b"))
    await cell.over()
    late = await cell.answered("submit-job", cell.body(other))
    assert late["outcome"] == "refused"
    assert len(cell.journal.of_job(first.id, "gang-granted")) == 1
    await cell.judge()


async def test_an_order_that_nobody_can_read_stops_no_host(cell: Cell) -> None:
    for host in ("host-001", "host-002", "host-003", "host-004"):
        for garbage in (b"\xff", b"{}", b"null"):
            await cell.publish(cell.subjects.order(host), garbage)
    await cell.submit(Job("whole", hosts=4, gpus=8))
    await cell.over()
    await cell.judge()


async def test_a_verb_that_nobody_knows_is_left_alone_and_holds_up_nothing(cell: Cell) -> None:
    ears = await Ears.at(cell, cell.subjects.answer("local", 0).rpartition(".")[0] + ".*")
    seq = await cell.send("make-coffee", {})
    await cell.answered("change-budget", {"budget": "team-a", "weight": 1})
    heard = (await ears.next()).subject
    assert not heard.endswith(f".{seq}")
    await cell.judge()


@pytest.mark.parametrize("status", ["100", "404", "408", "409", "503", "x"])
async def test_a_message_that_poses_as_the_buss_own_word_is_answered_like_any_other(cell: Cell, status: str) -> None:
    """The bus tells a reader by a `Status` header that nothing is there, or that its consumer is gone."""
    headers = {"Status": status, "Description": "Consumer Deleted", "Nats-Pending-Messages": "7"}
    body = json.dumps({"job": "job-x"}).encode()
    reply = await cell.client.request(cell.subjects.command("local", "cancel-job"), body, timeout=5, headers=headers)
    answer = await cell.answer("local", json.loads(reply.data)["seq"])
    assert (answer["verb"], answer["outcome"]) == ("cancel-job", "refused")
    up = json.dumps({"attempt": "job-x-a1", "token": "1-1-1"}).encode()
    await cell.client.request(cell.subjects.report("host-001", "run-started"), up, timeout=5, headers=headers)
    await eventually(cell.court.is_everything_answered, "the report is answered")


async def test_a_contract_that_grows_beyond_its_store_in_normal_form_is_refused_and_holds_up_nothing(
    cell: Cell,
) -> None:
    """U+1D160 is four bytes, and twelve in normal form C: 40 KiB of it are a contract of 120 KiB."""
    body = cell.body(Job("grows"))
    body["contract"]["spec"]["env"] = {f"NOTES_{n}": "\U0001d160" * 1_000 for n in range(10)}
    seq = await cell.send("submit-job", json.dumps(body, ensure_ascii=False).encode())
    await cell.submit(Job("behind-it"))
    await cell.over()
    answer = await cell.answer("local", seq)
    assert answer["outcome"] == "refused"
    assert answer["problems"], answer
    await cell.judge()


async def test_a_contract_as_large_as_may_be_runs(cell: Cell) -> None:
    body = cell.body(job := Job("large"))
    body["contract"]["spec"]["env"] |= {f"FILL_{n}": "x" * 8_000 for n in range(5)}
    cell.jobs[job.id] = job
    assert (await cell.answered("submit-job", body))["outcome"] == "accepted"
    await cell.over()


@pytest.mark.parametrize("seed", [1])
async def test_two_thousand_commands_at_once_are_answered_in_their_order(cell: Cell, seed: int) -> None:
    chance = Random(seed)
    bodies = [
        (chance.choice(("cancel-job", "change-budget", "return-host")), chance.choice(("local", "ci")))
        for _ in range(2_000)
    ]
    before = await cell.journal.read()
    await asyncio.gather(*(cell.send(verb, {"flood": n}, account) for n, (verb, account) in enumerate(bodies)))
    await cell.submit(Job("amid-the-flood"))
    await cell.over()
    await eventually(cell.court.is_everything_answered, "every command is answered")
    assert await cell.journal.read() - before < 500, "a flood of commands became a flood of records"
    await cell.judge()
