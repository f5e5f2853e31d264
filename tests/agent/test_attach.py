"""Sessions between a client on the bus and a job's terminal: whose they are, how they end, what they hold."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import nats.errors
import pytest
from nats.aio.msg import Msg

from fairlease.agent.attach import MOST_SESSIONS, Sessions
from fairlease_schemas.attach import (
    MOST_SHOWN_BYTES,
    MOST_TYPED_BYTES,
    WINDOW_BYTES,
    AttachAnswer,
    AttachQuestion,
    Shown,
    Taken,
    Typed,
)
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.subjects import BEGIN, Subjects
from tests.agent.bench import Bench, keeper_of, shell, until

pytestmark = pytest.mark.asyncio

INBOX = "_INBOX.client.1"
ADA = "ada"
SUBJECTS = Subjects("lab")
BEGINS = SUBJECTS.attach("host-001", ADA, BEGIN)
SHOWN = SUBJECTS.shown("host-001", ADA, "first")
PLAIN = {"PS1": "", "TERM": "dumb"}


class Spoken(NamedTuple):
    """A message as a session gets it: it answers into a list."""

    data: bytes
    reply: str
    subject: str
    answers: list[bytes]

    async def respond(self, data: bytes) -> None:
        self.answers.append(data)


class Bus:
    """A bus of one process: what was published, and who listens."""

    def __init__(self) -> None:
        self.shown: dict[str, list[Shown]] = {}
        self.listening: dict[str, Callable[[Msg], Awaitable[None]]] = {}

    async def publish(self, subject: str, payload: bytes) -> None:
        self.shown.setdefault(subject, []).append(msgspec.json.decode(payload, type=Shown))

    async def subscribe(self, subject: str, *, cb: Callable[[Msg], Awaitable[None]]) -> "Ear":
        self.listening[subject] = cb
        return Ear(self, subject)

    async def say(self, subject: str, data: bytes, reply: str = INBOX) -> list[bytes]:
        answers: list[bytes] = []
        await self.listening[subject](Spoken(data, reply, subject, answers))  # type: ignore[arg-type]  # as much of a message as is used
        return answers

    async def type(self, subject: str, **typed: object) -> Taken:
        (answer,) = await self.say(subject, msgspec.json.encode(Typed(**typed)))  # type: ignore[arg-type]  # fields by name
        return msgspec.json.decode(answer, type=Taken)

    def text(self, output: str = SHOWN) -> str:
        return b"".join(shown.data for shown in self.shown.get(output, ())).decode()

    def is_over(self, output: str = SHOWN) -> bool:
        return any(shown.is_over for shown in self.shown.get(output, ()))


class Ear(NamedTuple):
    """A subscription."""

    bus: Bus
    subject: str

    async def unsubscribe(self) -> None:
        del self.bus.listening[self.subject]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
async def sessions(bench: Bench, bus: Bus) -> AsyncIterator[Sessions]:
    sessions = Sessions(bench.host, bus, Subjects("lab"), silence_s=30.0)
    yield sessions
    sessions.close()
    await until(lambda: not sessions.count, "all have left")


async def running(bench: Bench, name: str, script: str = "exec /bin/sh", **more: object) -> RunOrder:
    part = bench.part(name, shell(script), env=PLAIN, terminal=True, **more)  # type: ignore[arg-type]  # words of a part
    bench.order(part)
    await bench.started(part)
    return part


def question(part: RunOrder, **more: object) -> bytes:
    plain = {"attempt": part.attempt, "output": "first"}
    return msgspec.json.encode(AttachQuestion(**{**plain, **more}))  # type: ignore[arg-type]  # fields by name


async def ask(sessions: Sessions, part: RunOrder, **more: object) -> AttachAnswer:
    """What the job's own account is told."""
    return await sessions.attach(ADA, question(part, **more))


async def attached(sessions: Sessions, part: RunOrder, **more: object) -> str:
    answer = await ask(sessions, part, **more)
    assert answer.problem == ""
    assert answer.input.startswith(SUBJECTS.attach("host-001", ADA, ""))
    return answer.input


async def test_what_is_typed_goes_to_the_job_and_what_it_shows_comes_back_in_order(
    bench: Bench, bus: Bus, sessions: Sessions
) -> None:
    # rule: 1.17
    part = await running(bench, "a")
    session = await attached(sessions, part, rows=20, cols=70)
    assert await bus.type(session, data=b"stty size; echo seen-$((4))\n") == Taken(sent=len(bus.text()))
    await until(lambda: "20 70" in bus.text() and "seen-4" in bus.text(), "it is shown")
    await bus.type(session, rows=30, cols=99, data=b"stty size\n")
    await until(lambda: "30 99" in bus.text(), "the new size is there")
    await bus.type(session, data=b"exit 4\n")
    await until(bus.is_over, "it is over")
    at = 0
    for shown in bus.shown[SHOWN]:
        assert shown.at == at
        assert len(shown.data) <= MOST_SHOWN_BYTES
        at += len(shown.data)
    assert (await bench.gone(part)).exit_code == 4
    await until(lambda: not bus.listening, "nobody listens any more")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"attempt": "job-b-a1"}, "no run job-b-a1 on host-001", id="no such run"),
        pytest.param({"output": "a.b"}, "output must be a name", id="an output of other tokens"),
        pytest.param({"output": "*"}, "output must be a name", id="a wildcard as output"),
        pytest.param({"output": ""}, "output must be a name", id="nothing as output"),
    ],
)
async def test_who_may_not_attach_is_told_why(
    bench: Bench, sessions: Sessions, change: dict[str, object], why: str
) -> None:
    # rule: 1.17
    part = await running(bench, "a")
    answer = await ask(sessions, part, **change)
    assert why in answer.problem
    assert (answer.input, sessions.count) == ("", 0)


@pytest.mark.parametrize("account", ["eve", ""])
async def test_only_the_account_that_the_subject_names_may_attach(
    bench: Bench, bus: Bus, sessions: Sessions, account: str
) -> None:
    # rule: 1.17
    part = await running(bench, "a")
    lie = msgspec.json.encode({"attempt": part.attempt, "account": part.account, "output": "first"})
    subject, answers = SUBJECTS.attach("host-001", account, BEGIN), list[bytes]()
    await sessions.on_question(Spoken(lie, INBOX, subject, answers))  # type: ignore[arg-type]  # as much of a message as is used
    (answer,) = (msgspec.json.decode(data, type=AttachAnswer) for data in answers)
    assert "is a job of another account; only its own may attach" in answer.problem
    assert (answer.input, sessions.count, bus.listening) == ("", 0, {})


async def test_a_job_of_nobody_is_nobodys(bench: Bench, sessions: Sessions) -> None:
    part = await running(bench, "a", account="")
    for account in ("", ADA):
        assert "of another account" in (await sessions.attach(account, question(part))).problem


async def test_what_has_no_terminal_or_is_over_is_said(bench: Bench, sessions: Sessions) -> None:
    plain = bench.part("a", shell("sleep 600"))
    over = bench.part("b", shell("true"), terminal=True, gpus=(1,))
    bench.order(plain, over)
    await bench.started(plain)
    await bench.gone(over)
    assert "has no terminal: submit it with --interactive" in (await ask(sessions, plain)).problem
    assert await ask(sessions, over) == AttachAnswer(problem="job-b-a1 is over", is_over=True)


async def test_a_terminal_that_is_not_there_yet_is_one_to_ask_for_again(bench: Bench, sessions: Sessions) -> None:
    part = await running(bench, "a")
    (bench.directory(part).path / "attach").unlink()
    answer = await ask(sessions, part)
    assert answer == AttachAnswer(problem="the terminal of job-a-a1 is not there yet", is_soon=True)


async def test_a_client_that_its_keeper_let_go_is_not_told_that_the_job_is_over(
    bench: Bench, bus: Bus, sessions: Sessions
) -> None:
    part = await running(bench, "a")
    await attached(sessions, part)
    os.kill(keeper_of(bench.directory(part)).pid, signal.SIGKILL)
    await until(lambda: not sessions.count, "its session has ended")
    assert not bus.is_over()
    await bench.gone(part)
    assert (await ask(sessions, part)).is_over


async def test_rubbish_is_answered_and_changes_nothing(bench: Bench, bus: Bus, sessions: Sessions) -> None:
    part = await running(bench, "a")
    assert "missing required field" in (await sessions.attach(ADA, b"{}")).problem
    assert (await sessions.attach(ADA, b"\xff")).problem
    session = await attached(sessions, part)
    for data in (b"{", b"\xff", b'{"data": 1}', msgspec.json.encode(Typed(data=b"x" * (MOST_TYPED_BYTES + 1)))):
        (answer,) = await bus.say(session, data)
        assert msgspec.json.decode(answer, type=Taken).problem
    await bus.type(session, rows=-1, cols=1 << 20)
    await bus.type(session, seen=1 << 60)
    await bus.type(session, data=b"echo fine-$((1))\n")
    await until(lambda: "fine-1" in bus.text(), "the session goes on")


async def test_answers_go_to_an_inbox_only(bench: Bench, bus: Bus, sessions: Sessions) -> None:
    part = await running(bench, "a")
    session = await attached(sessions, part)
    assert await bus.say(session, msgspec.json.encode(Typed()), "fl.lab.report.host-002.run-gone") == []
    answers: list[bytes] = []
    await sessions.on_question(Spoken(question(part), "fl.lab.report.host-002.run-gone", BEGINS, answers))  # type: ignore[arg-type]  # as above
    assert (answers, sessions.count) == ([], 1)
    await sessions.on_question(Spoken(question(part), INBOX, BEGINS, answers))  # type: ignore[arg-type]  # as above
    assert (len(answers), sessions.count) == (1, 2)


async def test_who_reads_along_types_nothing_and_changes_no_window(bench: Bench, bus: Bus, sessions: Sessions) -> None:
    # rule: 1.17
    part = await running(bench, "a")
    writes = await attached(sessions, part, rows=20, cols=70)
    reads = await attached(sessions, part, output="reader", rows=5, cols=5, is_read_only=True)
    assert not (await bus.type(reads, data=b"echo evil-$((1))\n", rows=9, cols=9)).problem
    await bus.type(writes, data=b"stty size; echo good-$((1))\n")
    await until(lambda: "good-1" in bus.text(SUBJECTS.shown("host-001", ADA, "reader")), "both see it")
    assert "20 70" in bus.text(SUBJECTS.shown("host-001", ADA, "reader"))
    assert "evil" not in bus.text()


async def test_who_leaves_or_is_silent_is_gone_and_the_job_goes_on(bench: Bench, bus: Bus, sessions: Sessions) -> None:
    # rule: 1.17
    part = await running(bench, "a")
    session = await attached(sessions, part)
    await bus.type(session, is_leaving=True)
    await until(lambda: not sessions.count and not bus.listening, "it has left")
    short = Sessions(bench.host, bus, Subjects("lab"), silence_s=0.1)
    await attached(short, part)
    await until(lambda: not short.count and not bus.listening, "it was silent for too long")
    again = await attached(sessions, part)
    await bus.type(again, data=b"echo there-$((1))\n")
    await until(lambda: "there-1" in bus.text(), "the shell is there")


async def test_a_client_that_does_not_say_what_it_saw_gets_no_more_than_a_window(
    bench: Bench, bus: Bus, sessions: Sessions
) -> None:
    # rule: 1.17
    part = await running(bench, "a", "read go; seq -f 'line %040g.' 60000; echo all-done; touch ../printed; read go")
    slow = await attached(sessions, part)
    quick = await attached(sessions, part, output="quick")
    await bus.type(quick, data=b"\n")

    async def follow() -> None:
        while "all-done" not in bus.text(SUBJECTS.shown("host-001", ADA, "quick")):
            await bus.type(
                quick,
                seen=sum(len(shown.data) for shown in bus.shown.get(SUBJECTS.shown("host-001", ADA, "quick"), ())),
            )
            await asyncio.sleep(0.005)

    async with asyncio.timeout(15):
        await follow()
    assert WINDOW_BYTES <= len(bus.text()) < WINDOW_BYTES + MOST_SHOWN_BYTES
    while "all-done" not in bus.text():
        await bus.type(slow, seen=len(bus.text()))
        await asyncio.sleep(0)
    await until((bench.directory(part).path / "printed").exists, "what it does after its last line")


async def test_keys_that_the_job_does_not_take_stay_with_the_client(bench: Bench, bus: Bus, sessions: Sessions) -> None:
    part = await running(bench, "a", "stty raw -echo; echo deaf; exec sleep 600")
    session = await attached(sessions, part)
    await until(lambda: "deaf" in bus.text(), "it reads nothing")
    taken = 0
    while not (await bus.type(session, data=b"z" * MOST_TYPED_BYTES)).is_full:
        taken += MOST_TYPED_BYTES
        assert taken < 4 << 20, "all of it is kept here"
        await asyncio.sleep(0)


async def test_there_is_an_end_to_how_many_attach(bench: Bench, sessions: Sessions) -> None:
    part = await running(bench, "a", "exec sleep 600")
    for _ in range(MOST_SESSIONS):
        await attached(sessions, part)
    answer = await ask(sessions, part)
    assert answer.problem == "16 clients are attached to the terminal of job-a-a1 already"


async def test_clients_who_come_at_the_same_moment_are_counted_too(bench: Bench, bus: Bus, sessions: Sessions) -> None:
    # rule: 1.17
    part = await running(bench, "a")
    coming = (ask(sessions, part) for _ in range(2 * MOST_SESSIONS))
    answers = await asyncio.gather(*coming)
    assert sum(answer.problem == "" for answer in answers) == MOST_SESSIONS == sessions.count
    assert {answer.problem for answer in answers} - {""} == {
        f"{MOST_SESSIONS} clients are attached to the terminal of {part.attempt} already"
    }


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("error", [nats.errors.ConnectionClosedError(), RuntimeError("nobody thought of it")])
async def test_a_session_that_nobody_can_listen_to_leaves_no_socket_and_no_place(
    bench: Bench, bus: Bus, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    part = await running(bench, "a")

    async def refuse(*_: object, **__: object) -> Ear:
        raise error

    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(bus, "subscribe", refuse)
        for _ in range(MOST_SESSIONS + 1):
            if isinstance(error, RuntimeError):
                with pytest.raises(RuntimeError):
                    await ask(sessions, part)
            else:
                assert (await ask(sessions, part)).is_soon
    await until(lambda: open_files() == before, "all sockets are closed")
    await attached(sessions, part)
