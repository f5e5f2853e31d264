"""Leases (7.6): a host that cannot renew stops its runs by itself, in time, whoever else lives or not."""

import asyncio
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from fairlease.agent import layout
from fairlease.agent.lease import Lease, keep
from fairlease.agent.process import boot_id
from fairlease.runtime import bus_server
from fairlease.runtime.errors import BusAway
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunGone, RunStarted
from tests.agent.bench import Bench, marked, python, shell, until
from tests.agent.test_runs import late_shim, left, prepared
from tests.agent.test_service import HOST, WAITS, Cell
from tests.services.bench import Proxy

LEASE_MS, GRACE_MS, MARGIN_MS = 1_500, 300, 1_000
RAN_OUT = (End.FAULT, "its host's lease ran out")
ENDLESS = "echo up >> ../starts; sleep 1000 & wait"
STUBBORN = """
import os, signal, time
for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(name, signal.SIG_IGN)
os.open("../starts", os.O_CREAT)
if os.fork() == 0:
    os.setsid()
while True:
    time.sleep(0.01)
"""
"""A job that deserves it: deaf, and in two sessions."""


@pytest.fixture
async def cell(own_bus: list[bus_server.BusServer], state: Path) -> AsyncIterator[Cell]:
    cell = Cell(own_bus, state)
    cell.lease_ms = LEASE_MS
    await cell.connect()
    yield cell
    cell.end()
    await cell.client.close()


def end_of_lease(home: Path) -> int:
    """Until when the host may run anything, in ms since boot."""
    found = layout.read_lease(str(home / layout.LEASE), boot_id())
    assert found is not None
    return found[0]


async def running(cell: Cell, name: str, script: str = ENDLESS, gpu: int = 0) -> RunOrder:
    """A run whose command has begun, ordered alone."""
    part = await cell.part(name, script, gpu)
    part = msgspec.structs.replace(part, run_grace_ms=GRACE_MS, margin_ms=MARGIN_MS)
    await cell.order(part)
    await cell.reported(RunStarted, part.attempt)
    return part


async def fenced(cell: Cell, part: RunOrder) -> int:
    """Returns once the run is over, by itself; how many ms after its host's lease."""
    directory = cell.directory(part)
    await until(directory.gone, "its keeper ends it")
    late_ms = layout.boot_ms() - end_of_lease(cell.state / "agent" / HOST)
    found = directory.gone()
    assert found is not None
    assert (found.end, found.detail) == RAN_OUT
    assert not [pid for pid in marked(directory.path) if str(directory.path).encode() in _environment(pid)]
    return late_ms


def _is_past(instant_ms: int) -> bool:
    return layout.boot_ms() > instant_ms


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


# the agent is away, or the bus --------------------------------------------------------------------


async def test_the_runs_of_a_killed_agent_are_stopped_when_the_lease_is_over(cell: Cell) -> None:
    # rule: 7.6
    agent = cell.start()
    part = await running(cell, "a")
    agent.kill()
    killed_ms = layout.boot_ms()
    late_ms = await fenced(cell, part)
    assert 0 <= late_ms <= GRACE_MS + MARGIN_MS
    assert layout.boot_ms() - killed_ms <= LEASE_MS + GRACE_MS + MARGIN_MS
    cell.start()
    gone = await cell.reported(RunGone, part.attempt)
    assert (gone.end, gone.detail, gone.exit_code) == (*RAN_OUT, 143)


async def test_a_stubborn_job_of_a_dead_agent_is_killed_inside_grace_and_margin(cell: Cell) -> None:
    # rule: 7.6
    agent = cell.start()
    command = " ".join((python("")[0], "-I", "-S", "-c", f"'{STUBBORN}'"))
    part = await running(cell, "a", f"exec {command}")
    await until((cell.directory(part).path / "starts").exists, "it is deaf by now")
    agent.kill()
    assert GRACE_MS <= await fenced(cell, part) <= GRACE_MS + MARGIN_MS


async def test_without_a_bus_all_is_stopped_and_with_it_only_new_work_begins(cell: Cell) -> None:
    # rule: 7.6
    cell.start()
    part = await running(cell, "a")
    later = await cell.part("b", "exit 4")
    cell.servers[0].kill()
    assert await fenced(cell, part) <= GRACE_MS + MARGIN_MS
    cell.servers[0] = bus_server.start(cell.servers[0].home, dies_with_parent=True)
    gone = await cell.reported(RunGone, part.attempt)
    assert (gone.end, gone.detail) == RAN_OUT
    await cell.order(part, later)
    assert (await cell.reported(RunGone, later.attempt)).exit_code == 4
    assert (cell.directory(part).path / "starts").read_text() == "up\n"
    assert [type(r).__name__ for r in await cell.reports()].count("RunGone") == 2


async def test_an_agent_that_the_bus_hears_and_that_hears_nothing_stops_its_runs(cell: Cell) -> None:
    """Its renewals are stored, and it does not know that; so it must think of the worst."""
    # rule: 7.6
    async with Proxy(cell.servers[0].url) as proxy:
        cell.url = proxy.url
        cell.start()
        part = await running(cell, "a")
        proxy.is_deaf = True
        assert await fenced(cell, part) <= GRACE_MS + MARGIN_MS
        gone = await cell.reported(RunGone, part.attempt)
        assert (gone.end, gone.detail) == RAN_OUT
        proxy.is_deaf = False
        proxy.cut()
        later = await cell.part("b", "exit 4")
        await cell.order(part, later)
        assert (await cell.reported(RunGone, later.attempt)).exit_code == 4


async def test_an_agent_that_stood_still_for_longer_than_the_lease_finds_its_runs_stopped_and_says_so(
    cell: Cell,
) -> None:
    # rule: 7.6
    agent = cell.start()
    part = await running(cell, "a")
    agent.send_signal(signal.SIGSTOP)
    assert await fenced(cell, part) <= GRACE_MS + MARGIN_MS
    later = await cell.part("b", "exit 4")
    await cell.order(later)
    agent.send_signal(signal.SIGCONT)
    gone = await cell.reported(RunGone, part.attempt)
    assert (gone.end, gone.detail) == RAN_OUT
    assert (await cell.reported(RunGone, later.attempt)).exit_code == 4


async def test_an_agent_back_within_the_lease_keeps_its_runs_alive(cell: Cell) -> None:
    # rule: 7.6
    cell.lease_ms = 6_000  # an agent must be able to start within it, on a busy machine too
    agent = cell.start()
    part = await running(cell, "a", WAITS)
    agent.kill()
    agent.wait()
    old_end_ms = end_of_lease(cell.state / "agent" / HOST)
    agent = cell.start()
    await until(partial(_is_past, old_end_ms + LEASE_MS), "the old lease is long over")
    cell.let_end(part)
    gone = await cell.reported(RunGone, part.attempt)
    assert (gone.end, gone.exit_code) == (End.FAILED, 3)


async def test_a_renewal_says_which_life_of_the_host_it_is_and_the_last_is_kept(cell: Cell) -> None:
    cell.start()
    await running(cell, "a")
    stream, subject = cell.subjects.leases_stream, cell.subjects.lease(HOST)
    bodies = []
    for _ in range(2):
        message = await cell.client.jsm().get_last_msg(stream, subject)
        bodies.append(msgspec.json.decode(message.data or b""))
        await asyncio.sleep(LEASE_MS / 2_000)  # two renewals later
    assert {body["incarnation"] for body in bodies} == {boot_id()}
    assert bodies[1]["counter"] > bodies[0]["counter"]
    assert (await cell.client.jsm().stream_info(stream)).state.messages == 1


# the keeper ---------------------------------------------------------------------------------------


async def test_a_fenced_run_is_told_like_any_other_that_shall_stop(bench: Bench) -> None:
    # rule: 8.1
    script = "trap 'cat $FAIRLEASE_PREEMPT_FILE; exit 0' USR1; echo ready; while :; do sleep 0.01; done"
    part = bench.part("a", shell(script), checkpoint={"signal": "USR1"})
    bench.order(msgspec.structs.replace(part, run_grace_ms=60_000))
    await bench.printed(part, "ready")
    bench.host.lease.set_length(100)
    until_ms = end_of_lease(bench.home)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail, gone.exit_code) == (*RAN_OUT, 0)
    notice = msgspec.json.decode(bench.log(part).partition("\n")[2])
    assert notice == {"reason": "lease", "term_at_ms": until_ms + 60_000, "kill_at_ms": until_ms + 60_100}


async def test_a_stop_with_a_long_grace_is_over_when_the_lease_says_so(bench: Bench) -> None:
    part = bench.part("a", shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=600_000))
    bench.host.lease.set_length(100)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail, gone.exit_code) == (End.CANCELLED, "asked", 137)


async def test_an_order_to_stop_at_once_hastens_a_fenced_run(bench: Bench) -> None:
    part = msgspec.structs.replace(bench.part("a", shell(ENDLESS)), run_grace_ms=600_000)
    bench.order(part)
    await bench.started(part)
    bench.host.lease.set_length(100)
    await until(bench.directory(part).preempt_file.exists, "it is fenced")
    bench.renew()
    bench.order()
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == RAN_OUT


async def test_what_had_ended_before_the_lease_did_keeps_its_own_end(bench: Bench) -> None:
    part = bench.part("a", shell("exit 5"))
    bench.order(part)
    assert (await bench.gone(part)).exit_code == 5
    bench.host.lease.set_length(1)
    bench.restart()
    assert [gone.end for gone in bench.of(part, RunGone)] == [End.FAILED]


async def test_a_shim_that_comes_after_the_lease_begins_nothing(bench: Bench) -> None:
    # rule: 7.6
    directory = prepared(bench)
    layout.write_lease(str(bench.home / layout.LEASE), boot_id(), layout.boot_ms() - 1, 60_000)
    await left(late_shim(bench, directory))
    found = directory.gone()
    assert found is not None
    assert (found.end, found.detail) == RAN_OUT
    assert not (directory.path / layout.WORK / "ran").exists()


async def test_a_keeper_that_was_late_itself_kills_at_once(bench: Bench) -> None:
    """Its instants count from the lease's end, not from when it saw it."""
    part = bench.part("a", shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"), margin_ms=20_000)
    bench.order(part)
    await bench.printed(part, "ready")
    until_ms = layout.boot_ms() - 3_600_000
    layout.write_lease(str(bench.home / layout.LEASE), boot_id(), until_ms, 60_000)
    began_ms = layout.boot_ms()
    assert (await bench.gone(part)).exit_code == 137
    assert layout.boot_ms() - began_ms < 5_000


# the agent's side ---------------------------------------------------------------------------------


@pytest.fixture
async def unleased(state: Path) -> AsyncIterator[Bench]:
    bench = Bench(state)
    bench.has_lease = False
    bench.open()
    yield bench
    bench.close()


async def test_nothing_begins_without_a_lease_nor_on_an_order_from_before_it(unleased: Bench) -> None:
    # rule: 7.6
    bench = unleased
    part = bench.part("a", shell("exit 0"))
    bench.order(part)
    await until(lambda: bench.host._learned, "its contract is there")
    assert bench.host.run(part.attempt) is None
    bench.renew()
    bench.host._agree()
    assert bench.host.run(part.attempt) is None
    bench.order(part, position=bench._position)
    assert (await bench.gone(part)).end == End.SUCCEEDED


async def test_what_was_refused_or_stopped_before_it_began_needs_no_lease(unleased: Bench) -> None:
    bench = unleased
    part = bench.part("a", stop="asked")
    bench.order(part)
    assert (await bench.gone(part)).end == End.CANCELLED


async def test_a_shorter_length_in_an_order_counts_from_the_last_renewal(bench: Bench) -> None:
    until_ms = end_of_lease(bench.home)
    bench.lease_ms = 20_000
    bench.order()
    assert end_of_lease(bench.home) == until_ms - 40_000
    bench.close()
    lease = Lease(bench.home, boot_id())
    lease.open()
    assert (lease.length_ms, lease.is_valid, lease.term) == (20_000, True, 1)


async def test_a_longer_length_counts_from_the_next_renewal(bench: Bench) -> None:
    until_ms = end_of_lease(bench.home)
    bench.lease_ms = 90_000
    bench.order()
    assert end_of_lease(bench.home) == until_ms
    bench.host.lease.renewed(5, 60_000)
    assert end_of_lease(bench.home) == 60_005
    bench.renew()
    assert until_ms + 30_000 <= end_of_lease(bench.home) <= layout.boot_ms() + 90_000


def test_a_lease_of_another_boot_is_none(state: Path) -> None:
    lease = Lease(state, "a" * 32)
    lease.renewed(layout.boot_ms(), lease.length_ms)
    other = Lease(state, "b" * 32)
    other.open()
    assert (other.is_valid, other.term) == (False, 0)
    assert layout.read_lease(str(state / "nowhere"), "a" * 32) == (0, 0)


def test_a_reader_amid_a_change_looks_again(state: Path) -> None:
    path = state / layout.LEASE
    layout.write_lease(str(path), "a" * 32, 1_000, 500)
    text = path.read_text()
    for cut in range(33, len(text) - 2):
        layout.write_lease(str(path), "a" * 32, 2_222, 777)
        path.write_text(path.read_text()[:cut] + text[cut:])
        assert layout.read_lease(str(path), "a" * 32) in (None, (1_000, 500), (2_222, 777))
    path.write_text("")
    assert layout.read_lease(str(path), "a" * 32) is None


@pytest.mark.parametrize("line", ["", "x", "1", "1 2 3", "1 x", "9" * 5_000 + " 1"])
def test_a_spoiled_lease_is_none(state: Path, line: str) -> None:
    (state / layout.LEASE).write_text(f"{'a' * 32}\n{line}\n{line}\n")
    assert layout.read_lease(str(state / layout.LEASE), "a" * 32) in ((0, 0), None)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"5", b"\xff", b'{"reason": "x", "kill_at_ms": "soon"}', b"[" * 99_999]
)
def test_an_order_to_stop_that_cannot_be_read_means_now(
    state: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.chdir(state)
    (state / layout.STOP).write_bytes(data)
    assert layout.read_stop() == (layout.UNREADABLE, 0, 0)


class Bus:
    """Acknowledges a renewal so many seconds late; `answers` are consumed, None is no answer at all."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)
        self.sent_ms: list[int] = []
        self.is_over = asyncio.Event()

    async def publish(self, _body: bytes, _patience_s: float) -> None:
        if not self.answers:
            self.is_over.set()
            await asyncio.Event().wait()
        self.sent_ms.append(layout.boot_ms())
        late_s = self.answers.pop(0)
        if late_s is None:
            raise BusAway("cut")
        await asyncio.sleep(late_s)


async def renewing(lease: Lease, bus: Bus) -> int:
    """Renews until the bus's answers are used up; how many terms began."""
    terms: list[int] = []
    task = asyncio.create_task(keep(lease, bus.publish, "boot", lambda: terms.append(lease.term)))
    async with asyncio.timeout(10):
        await bus.is_over.wait()
    task.cancel()
    return len(terms)


async def test_a_renewal_acknowledged_late_counts_from_when_it_was_sent(state: Path) -> None:
    # rule: 7.6
    lease, bus = Lease(state, "a" * 32), Bus(0.3)
    lease.set_length(1_000)
    assert await renewing(lease, bus) == 1
    assert end_of(state) - 1_000 - bus.sent_ms[0] in (0, -1)


async def test_a_renewal_acknowledged_after_its_lease_is_none(state: Path) -> None:
    # rule: 7.6
    lease, bus = Lease(state, "a" * 32), Bus(0.3)
    lease.set_length(200)
    assert await renewing(lease, bus) == 0
    assert (lease.is_valid, lease.term) == (False, 0)


async def test_a_lease_is_renewed_four_times_and_more_often_while_nobody_answers(state: Path) -> None:
    lease, bus = Lease(state, "a" * 32), Bus(0, 0, None, None, 0)
    lease.set_length(1_000)
    assert await renewing(lease, bus) == 1
    steps = [after - before for before, after in zip(bus.sent_ms, bus.sent_ms[1:], strict=False)]
    for step, expected in zip(steps, (250, 250, 125, 125), strict=True):
        assert expected - 20 <= step <= expected + 100, steps


async def test_a_shorter_lease_is_renewed_at_once(state: Path) -> None:
    lease, bus = Lease(state, "a" * 32), Bus(0, 0)
    asyncio.get_running_loop().call_later(0.1, lease.set_length, 400)
    await renewing(lease, bus)
    assert 50 <= bus.sent_ms[1] - bus.sent_ms[0] <= 400


def end_of(home: Path) -> int:
    found = layout.read_lease(str(home / layout.LEASE), "a" * 32)
    assert found is not None
    return found[0]


async def test_an_attempt_is_never_begun_again_after_its_fence(bench: Bench) -> None:
    # rule: 7.6
    part = bench.part("a", shell(ENDLESS))
    bench.order(part)
    await bench.started(part)
    bench.host.lease.set_length(1)
    await bench.gone(part)
    bench.restart()
    bench.order(part)
    bench.renew()
    other = bench.part("b", shell("exit 0"))
    bench.order(part, other)
    await bench.gone(other)
    assert (bench.directory(part).path / "starts").read_text() == "up\n"
