"""A job's terminal: its keeper holds it, anybody may come and go, and the job never waits for a reader."""

import asyncio
import os
import signal
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlease.agent import layout
from fairlease.agent.runs import Run
from fairlease.agent.terminal import MOST_WAITING_BYTES, SCROLLBACK_BYTES
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from tests.agent.bench import PATIENCE_S, Bench, keeper_of, python, shell, until

pytestmark = pytest.mark.asyncio

PLAIN = {"PS1": "", "TERM": "dumb", "HISTFILE": "/dev/null"}


class Client:
    """A connection to a terminal, as the agent makes one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seen = b""

    def type(self, text: str) -> None:
        self.frame(b"i", text.encode())

    def resize(self, rows: int, cols: int) -> None:
        self.frame(b"w", struct.pack("!HH", rows, cols))

    def frame(self, kind: bytes, body: bytes) -> None:
        self.writer.write(kind + len(body).to_bytes(4, "big") + body)

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while text.encode() not in self.seen:
                data = await self.reader.read(65536)
                assert data, f"it is over, and {text!r} was never seen in {self.seen[-2000:]!r}"
                self.seen += data

    async def rest(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return self.seen + await self.reader.read()


def socket_of(bench: Bench, part: RunOrder) -> Path:
    return bench.directory(part).path / layout.ATTACH


class Clients:
    """Connections that a test makes; all are closed at its end."""

    def __init__(self) -> None:
        self._made: list[Client] = []

    async def at(self, bench: Bench, part: RunOrder) -> Client:
        made = await _connected(bench, part)
        self._made.append(made)
        return made

    async def close(self) -> None:
        for one in self._made:
            one.writer.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    clients = Clients()
    yield clients
    await clients.close()


async def _connected(bench: Bench, part: RunOrder) -> Client:
    path = socket_of(bench, part)
    await until(bench.directory(part).is_started, "the terminal is there")
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        return Client(*await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{path.name}"))
    finally:
        os.close(directory)


def at_terminal(bench: Bench, name: str, *command: str, **more: object) -> RunOrder:
    return bench.part(name, command or ("/bin/sh",), env=PLAIN, terminal=True, **more)  # type: ignore[arg-type]  # words of a part


async def test_a_shell_at_a_terminal_is_typed_into_and_ends_with_its_code(bench: Bench, clients: Clients) -> None:
    # rule: 1.17
    part = at_terminal(bench, "a")
    bench.order(part)
    here = await clients.at(bench, part)
    here.resize(31, 97)
    here.type("stty size; tty >/dev/null && echo is-a-$((1 + 1))-terminal; echo $TERM $FAIRLEASE_JOB\n")
    await here.sees("31 97")
    await here.sees("is-a-2-terminal")
    await here.sees(f"dumb {part.job}")
    here.type("exit 3\n")
    assert (await here.rest()).endswith(b"exit 3\r\n")
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.FAILED, 3)
    assert "is-a-2-terminal" in bench.log(part)
    assert not socket_of(bench, part).exists()


async def test_the_socket_is_the_agents_alone(bench: Bench, clients: Clients) -> None:
    part = at_terminal(bench, "a")
    bench.order(part)
    await clients.at(bench, part)
    assert socket_of(bench, part).stat().st_mode & 0o777 == 0o600


async def test_the_key_that_interrupts_reaches_who_is_in_front(bench: Bench, clients: Clients) -> None:
    part = at_terminal(bench, "a", "/bin/sh", "-i")
    bench.order(part)
    here = await clients.at(bench, part)
    here.type("sleep 600; echo $?-slept\n")
    await until(lambda: "sleep" in _names_below(bench, part), "it sleeps")
    here.type("\x03")
    here.type("echo still-$((40 + 2))\n")
    await here.sees("still-42")
    assert "sleep" not in _names_below(bench, part)


async def test_a_change_of_size_is_told_to_the_job(bench: Bench, clients: Clients) -> None:
    code = "import os, signal; told = {signal.SIGWINCH}; signal.pthread_sigmask(signal.SIG_BLOCK, told)\n"
    code += "print('ready', flush=True); signal.sigwait(told); print(os.get_terminal_size(), flush=True)"
    part = at_terminal(bench, "a", *python(code))
    bench.order(part)
    here = await clients.at(bench, part)
    await here.sees("ready")
    here.resize(50, 132)
    await here.sees("columns=132, lines=50")


async def test_the_job_goes_on_alone_and_who_comes_sees_the_last_screens(bench: Bench, clients: Clients) -> None:
    # rule: 1.17
    part = at_terminal(bench, "a")
    bench.order(part)
    first = await clients.at(bench, part)
    first.type("x=kept; echo first-$x\n")
    await first.sees("first-kept")
    first.writer.close()
    second = await clients.at(bench, part)
    await second.sees("first-kept")
    second.type("echo second-$x\n")
    await second.sees("second-kept")


async def test_several_see_the_same_and_any_of_them_may_type(bench: Bench, clients: Clients) -> None:
    # rule: 1.17
    part = at_terminal(bench, "a")
    bench.order(part)
    one, two = await clients.at(bench, part), await clients.at(bench, part)
    one.type("echo from-$((1))\n")
    two.type("echo from-$((2))\n")
    for here in (one, two):
        await here.sees("from-1")
        await here.sees("from-2")


async def test_one_who_does_not_read_holds_up_neither_the_job_nor_the_others(bench: Bench, clients: Clients) -> None:
    # rule: 1.17
    lines = (MOST_WAITING_BYTES + 3 * SCROLLBACK_BYTES) // 50
    part = at_terminal(bench, "a", "/bin/sh", "-c", f"read go; seq -f 'line %040g.' {lines}; echo all-done; read go")
    bench.order(part)
    slow, quick = await clients.at(bench, part), await clients.at(bench, part)
    await until(lambda: bench.directory(part).is_started(), "it runs")
    slow.writer.transport.pause_reading()
    quick.type("\n")
    await quick.sees("all-done")
    await bench.printed(part, "all-done")
    slow.writer.transport.resume_reading()
    await slow.sees("all-done")
    assert len(slow.seen) <= len(quick.seen)


async def test_what_was_too_fast_is_left_out_from_the_oldest_on(bench: Bench, clients: Clients) -> None:
    part = at_terminal(
        bench, "a", "/bin/sh", "-c", "read go; seq -f 'line %040g.' 60000; echo all-done; touch ../printed; read go"
    )
    bench.order(part)
    slow = await clients.at(bench, part)
    slow.writer.transport.pause_reading()
    slow.type("\n")
    await until((bench.directory(part).path / "printed").exists, "the job has printed it all")
    slow.writer.transport.resume_reading()
    await slow.sees("all-done")
    assert b"this was too fast for the link" in slow.seen
    assert len(slow.seen) < 2 * MOST_WAITING_BYTES + 2 * SCROLLBACK_BYTES


async def test_the_last_screens_begin_with_a_whole_line_and_are_bounded(bench: Bench, clients: Clients) -> None:
    part = at_terminal(bench, "a", "/bin/sh", "-c", "seq -f 'line %040g.' 5000; echo all-done; read go")
    bench.order(part)
    await bench.printed(part, "all-done")
    here = await clients.at(bench, part)
    await here.sees("all-done")
    assert here.seen.startswith(b"line 0000")
    assert len(here.seen) <= SCROLLBACK_BYTES


async def test_rubbish_ends_a_connection_and_nothing_else(bench: Bench, clients: Clients) -> None:
    part = at_terminal(bench, "a")
    bench.order(part)
    here = await clients.at(bench, part)
    for kind, body in ((b"x", b""), (b"w", b"12345"), (b"i", b"y" * (64 * 1024 + 1))):
        bad = await clients.at(bench, part)
        bad.frame(kind, body)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if not await bad.reader.read(65536):
                        break
                except ConnectionError:
                    break
    here.resize(0, 0)
    here.type("echo here-$((7))\n")
    await here.sees("here-7")


async def test_keys_that_nobody_reads_do_not_fill_the_keeper(bench: Bench, clients: Clients) -> None:
    part = at_terminal(bench, "a", "/bin/sh", "-c", "stty raw -echo; echo deaf; sleep 600")
    bench.order(part)
    here = await clients.at(bench, part)
    await here.sees("deaf")
    keeper = keeper_of(bench.directory(part))
    for _ in range(200):
        here.type("z" * 32_768)
    for _ in range(5):
        await (await clients.at(bench, part)).sees("deaf")
    assert here.writer.transport.get_write_buffer_size() > 1 << 20, "the keeper took it all"
    assert _resident_kib(keeper.pid) < 40_000


async def test_a_shell_that_ignores_the_request_is_hung_up(bench: Bench, clients: Clients) -> None:
    # rule: 1.17
    part = at_terminal(bench, "a", "/bin/sh", "-i")
    bench.order(part)
    here = await clients.at(bench, part)
    here.type("trap '' TERM; echo trap-$((1))\n")
    await here.sees("trap-1")
    bench.order(bench.stop(part, grace_ms=100, reason="timed-out"))
    assert b"the job is asked to stop: timed-out; TERM in 0 s" in await here.rest()
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code, gone.detail) == (End.CANCELLED, 128 + signal.SIGHUP, "timed-out")


async def test_one_that_ignores_all_is_killed(bench: Bench) -> None:
    part = at_terminal(bench, "a", "/bin/sh", "-c", "trap '' TERM HUP INT; echo deaf; while :; do sleep 1; done")
    bench.order(part)
    await bench.printed(part, "deaf")
    bench.order(bench.stop(part))
    assert (await bench.gone(part)).exit_code == 128 + signal.SIGKILL


async def test_a_terminal_outlives_the_agent(bench: Bench, clients: Clients) -> None:
    # rule: 1.17
    part = at_terminal(bench, "a")
    bench.order(part)
    here = await clients.at(bench, part)
    here.type("x=kept; echo one-$x\n")
    await here.sees("one-kept")
    here.writer.close()
    bench.restart()
    run = bench.host.run(part.attempt)
    assert isinstance(run, Run)
    assert (run.facts.has_terminal, run.facts.account) == (True, "ada")
    again = await clients.at(bench, part)
    again.type("echo two-$x; exit\n")
    await again.sees("two-kept")
    await bench.gone(part)


async def test_a_job_without_one_has_no_terminal(bench: Bench) -> None:
    part = bench.part("a", shell("test -t 0 || test -t 1 || echo none; read x || echo empty"))
    bench.order(part)
    await bench.gone(part)
    assert bench.log(part) == "none\nempty\n"
    assert not socket_of(bench, part).exists()


def _names_below(bench: Bench, part: RunOrder) -> list[str]:
    keeper = keeper_of(bench.directory(part)).pid
    return [_name(pid) for pid in layout.pids() if _is_below(pid, keeper)]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _is_below(pid: int, top: int) -> bool:
    while pid > 1:
        stat = layout.read_stat(pid)
        if stat is None or stat[0] in "ZX":
            return False
        if stat[1] == top:
            return True
        pid = stat[1]
    return False


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
