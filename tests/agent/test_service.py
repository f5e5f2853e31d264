"""The agent as a process on a real bus: killed, told to leave, cut off, asked."""

import asyncio
import base64
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlease.agent import layout
from fairlease.agent.devices import SimulatedDevices
from fairlease.agent.record import RunDirectory
from fairlease.runtime import api, bus_server, streams
from fairlease.runtime.connection import Connection, connect
from fairlease_schemas.codec import canonical
from fairlease_schemas.failure import FailureEvidence
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import End
from fairlease_schemas.orders import HostOrder, RunOrder
from fairlease_schemas.reports import KINDS, HostUp, RunGone, RunStarted
from fairlease_schemas.subjects import Subjects, last_token
from tests.agent.bench import PATIENCE_S, alive, contract, shell, until

HOST = "host-001"
WAITS = "echo ready; while [ ! -e ../end ]; do sleep 0.01; done; exit 3"


class Cell:
    """A bus of its own, one agent process of one host, and the hands of preemption and admission."""

    def __init__(self, servers: list[bus_server.BusServer], state: Path) -> None:
        self.servers = servers
        self.state = state
        self.subjects = Subjects("lab")
        self.devices = SimulatedDevices(1, 8)
        self.agents: list[subprocess.Popen[bytes]] = []
        self.position = 0
        self.lease_ms = 60_000
        self.url = ""
        """Where the agent finds the bus, if not at its own address."""
        self.client: Connection

    async def connect(self) -> None:
        self.client = await connect(self.servers[0].url, "test", exit_on_close=False)
        await streams.declare(self.client, self.subjects, ("local",))

    # the agent -----------------------------------------------------------------------------------
    def start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "FAIRLEASE_HOME": str(self.state), "FAIRLEASE_URL": self.url or self.servers[0].url}
        with (self.state / "agent.log").open("ab") as out:
            agent = subprocess.Popen(
                [sys.executable, "-c", "import sys; from fairlease.agent.main import main; sys.exit(main('1x8'))"],
                env=env,
                stdout=out,
                stderr=out,
            )
        self.agents.append(agent)
        return agent

    def end(self) -> None:
        for agent in self.agents:
            agent.kill()
            agent.wait()

    # orders --------------------------------------------------------------------------------------
    async def part(self, name: str, script: str, gpu: int = 0) -> RunOrder:
        digest, body = contract(shell(script))
        await self.put(self.subjects.contract(digest), body)
        gpus = (self.devices.inventory().gpus[gpu],)
        attempt = attempt_id(f"job-{name}", 1)
        return RunOrder(
            attempt=attempt, job=f"job-{name}", token="1-7-0", digest=digest, gpus=gpus, hosts=(HOST,), rank=0
        )

    async def order(self, *runs: RunOrder) -> None:
        self.position += 1
        order = HostOrder(epoch=1, position=self.position, host=HOST, runs=runs, lease_ms=self.lease_ms)
        await self.put(self.subjects.order(HOST), canonical(order))

    async def put(self, subject: str, body: bytes) -> None:
        """Publishes until the bus has it: the test may have just restarted it."""
        for _ in range(100):
            try:
                await self.client.request(subject, body, timeout=1)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next try or the last one shows it
                failure = error
                await asyncio.sleep(0.05)
            else:
                return
        raise failure

    # what came of it -----------------------------------------------------------------------------
    async def reports(self) -> list[Any]:
        """All that is in the reports stream, in order."""
        stream = self.subjects.reports_stream
        state = (await api.request(self.client, f"STREAM.INFO.{stream}"))["state"]
        found = []
        for seq in range(1, state["last_seq"] + 1):
            message = (await api.request(self.client, f"STREAM.MSG.GET.{stream}", {"seq": seq}))["message"]
            kind = last_token(message["subject"])
            found.append(msgspec.json.decode(base64.b64decode(message["data"]), type=KINDS[kind]))
        return found

    async def reported(self, kind: type, attempt: str = "", times: int = 1) -> Any:  # noqa: ANN401 - a report of the kind that was named
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + PATIENCE_S
        while True:
            found = [r for r in await self.reports() if isinstance(r, kind) and getattr(r, "attempt", "") == attempt]
            if len(found) >= times:
                return found[-1]
            assert loop.time() < limit_s, (self.state / "agent.log").read_text()
            await asyncio.sleep(0.01)

    def directory(self, part: RunOrder) -> RunDirectory:
        return RunDirectory(self.state / "agent" / HOST / "runs" / part.attempt)

    def let_end(self, part: RunOrder) -> None:
        (self.directory(part).path / "end").touch()

    async def ask(self, **question: str | int) -> dict[str, Any]:
        subject = self.subjects.ask(f"agent-{HOST}", "logs")
        reply = await self.client.request(subject, msgspec.json.encode(question), timeout=5)
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
        return answer


@pytest.fixture
async def cell(own_bus: list[bus_server.BusServer], state: Path) -> AsyncIterator[Cell]:
    cell = Cell(own_bus, state)
    await cell.connect()
    yield cell
    cell.end()
    await cell.client.close()


@pytest.mark.asyncio
async def test_the_evidence_of_a_failure_is_on_the_bus_before_its_report(cell: Cell) -> None:
    # rule: 8.4
    part = await cell.part("a", "echo the last word; exit 3")
    await cell.order(part)
    cell.start()
    gone = await cell.reported(RunGone, part.attempt)
    kept = await cell.client.jsm().get_last_msg(
        cell.subjects.evidence_stream, cell.subjects.evidence(HOST, gone.evidence)
    )
    assert kept.data is not None
    assert hashlib.sha256(kept.data).hexdigest() == gone.evidence
    found = msgspec.json.decode(kept.data, type=FailureEvidence)
    assert (found.attempt, found.end, found.exit_code, found.lines) == (part.attempt, End.FAILED, 3, ("the last word",))


@pytest.mark.asyncio
async def test_a_store_of_evidence_that_is_gone_holds_no_report_back(cell: Cell) -> None:
    # rule: 8.4
    await api.request(cell.client, f"STREAM.DELETE.{cell.subjects.evidence_stream}")
    part = await cell.part("a", "exit 3")
    await cell.order(part)
    cell.start()
    assert (await cell.reported(RunGone, part.attempt)).exit_code == 3


@pytest.mark.asyncio
async def test_what_was_ordered_before_the_agent_came_runs_and_is_reported_in_order(cell: Cell) -> None:
    part = await cell.part("a", "exit 3")
    await cell.order(part)
    cell.start()
    await cell.reported(RunGone, part.attempt)
    up, started, gone = await cell.reports()
    assert isinstance(up, HostUp)
    assert up.inventory.disk_mib > 0
    assert msgspec.structs.replace(up.inventory, disk_mib=0) == cell.devices.inventory()
    assert started == RunStarted(attempt=part.attempt, token=part.token)
    assert msgspec.structs.replace(gone, evidence="") == RunGone(
        attempt=part.attempt, token=part.token, end=End.FAILED, exit_code=3
    )


@pytest.mark.asyncio
async def test_a_killed_agents_successor_adopts_its_runs_and_reports_the_right_code(cell: Cell) -> None:
    running, ending = await cell.part("a", WAITS), await cell.part("b", WAITS, gpu=1)
    agent = cell.start()
    await cell.order(running, ending)
    await cell.reported(RunStarted, running.attempt)
    await cell.reported(RunStarted, ending.attempt)
    agent.kill()
    agent.wait()
    cell.let_end(ending)
    await until(cell.directory(ending).gone, "it ends while no agent is there")
    cell.start()
    assert (await cell.reported(RunGone, ending.attempt)).exit_code == 3
    cell.let_end(running)
    assert (await cell.reported(RunGone, running.attempt)).exit_code == 3
    kinds = [type(report).__name__ for report in await cell.reports()]
    assert kinds.count("RunGone") == 2
    assert kinds.count("HostUp") == 2


@pytest.mark.asyncio
async def test_an_agent_told_to_leave_leaves_its_jobs_running(cell: Cell) -> None:
    part = await cell.part("a", WAITS)
    agent = cell.start()
    await cell.order(part)
    await cell.reported(RunStarted, part.attempt)
    agent.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(agent.wait, PATIENCE_S) == 0
    leader = cell.directory(part).leader()
    assert leader is not None
    assert alive(leader.pid)
    cell.start()
    cell.let_end(part)
    assert (await cell.reported(RunGone, part.attempt)).exit_code == 3


@pytest.mark.asyncio
async def test_an_agent_told_to_leave_while_the_bus_is_away_leaves(cell: Cell) -> None:
    agent = cell.start()
    await cell.reported(HostUp)
    cell.servers[0].kill()
    agent.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(agent.wait, PATIENCE_S) == 0


@pytest.mark.asyncio
async def test_a_bus_that_dies_and_comes_back_costs_nothing(cell: Cell) -> None:
    part, later = await cell.part("a", WAITS), await cell.part("b", "exit 4", gpu=1)
    cell.start()
    await cell.order(part)
    await cell.reported(RunStarted, part.attempt)
    cell.servers[0].kill()
    cell.let_end(part)
    await until(cell.directory(part).gone, "it ends while no bus is there")
    cell.servers[0] = bus_server.start(cell.servers[0].home, dies_with_parent=True)
    assert (await cell.reported(RunGone, part.attempt)).exit_code == 3
    await cell.order(part, later)
    assert (await cell.reported(RunGone, later.attempt)).exit_code == 4


@pytest.mark.asyncio
async def test_repeats_duplicates_and_rubbish_on_the_order_subject_do_no_harm(cell: Cell) -> None:
    part, last = await cell.part("a", "echo up >> ../starts; exit 0"), await cell.part("b", "exit 0", gpu=1)
    cell.start()
    await cell.reported(HostUp)
    subject = cell.subjects.order(HOST)
    for _ in range(3):
        await cell.order(part)
        cell.position -= 1
        await cell.put(subject, b"\xff{")
        await cell.put(subject, b'{"epoch":"1"}')
    await cell.reported(RunGone, part.attempt)
    await cell.order(part, last)
    await cell.reported(RunGone, last.attempt)
    assert (cell.directory(part).path / "starts").read_text() == "up\n"
    assert len(await cell.reports()) == 5


@pytest.mark.asyncio
async def test_a_log_is_read_while_the_job_runs_and_after_it_ended(cell: Cell) -> None:
    part = await cell.part("a", "printf 'h\\303\\251llo\\n'; while [ ! -e ../end ]; do sleep 0.01; done; echo bye")
    cell.start()
    await cell.order(part)
    await cell.reported(RunStarted, part.attempt)
    log = cell.directory(part).path / layout.LOG
    await until(lambda: log.stat().st_size == 7, "the first line is there")
    answer = await cell.ask(attempt=part.attempt, offset=0, limit=1000)
    assert answer == {"data": "h\u00e9llo\n", "next": 7, "is_end": False, "problem": ""}
    assert (await cell.ask(attempt=part.attempt, offset=7))["is_end"] is False
    cell.let_end(part)
    await cell.reported(RunGone, part.attempt)
    assert await cell.ask(attempt=part.attempt, offset=7) == {
        "data": "bye\n",
        "next": 11,
        "is_end": True,
        "problem": "",
    }


@pytest.mark.asyncio
async def test_a_question_that_cannot_be_answered_is_told_why(cell: Cell) -> None:
    cell.start()
    await cell.reported(HostUp)
    assert "no run ../../x on host-001" in (await cell.ask(attempt="../../x"))["problem"]
    assert "missing required field `attempt`" in (await cell.ask(offset=1))["problem"]


@pytest.mark.asyncio
async def test_an_answer_goes_to_an_inbox_only(cell: Cell) -> None:
    """A question with a reply subject of a stream would make the agent write there."""
    part = await cell.part("a", "exit 0")
    cell.start()
    await cell.order(part)
    await cell.reported(RunGone, part.attempt)
    question = msgspec.json.encode({"attempt": part.attempt})
    forged = cell.subjects.report("host-002", "run-gone")
    await cell.client.publish(cell.subjects.ask(f"agent-{HOST}", "logs"), question, reply=forged)
    assert (await cell.ask(attempt=part.attempt))["is_end"] is True
    assert len(await cell.reports()) == 3


@pytest.mark.asyncio
async def test_a_second_agent_of_a_host_waits_until_the_first_has_left(cell: Cell) -> None:
    first = cell.start()
    await cell.reported(HostUp)
    cell.start()
    said = cell.state / "agent.log"
    await until(lambda: "another agent serves host-001" in said.read_text(), "the second says so")
    assert len(await cell.reports()) == 1
    first.kill()
    first.wait()
    await cell.reported(HostUp, times=2)


@pytest.mark.asyncio
async def test_the_agent_is_small(cell: Cell) -> None:
    part = await cell.part("a", "exit 0")
    agent = cell.start()
    await cell.order(part)
    await cell.reported(RunGone, part.attempt)
    assert resident_kib(agent.pid) <= 45 * 1024


def test_the_agent_imports_nothing_heavy() -> None:
    code = "import sys, fairlease.agent.main; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'msgspec'" in loaded
    for heavy in ("pydantic", "faststream", "opentelemetry"):
        assert f"'{heavy}'" not in loaded


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
