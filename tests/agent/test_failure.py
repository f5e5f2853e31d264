"""What is kept of a run that did not end well: gathered once, bounded, and never in the way of the report (8.4)."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlease.agent import failure, host, layout, process, runs
from fairlease.agent.contracts import Command
from fairlease.agent.outbox import Disconnected, Outbox
from fairlease.agent.record import Gone
from fairlease.runtime.errors import BusAway
from fairlease_schemas.failure import MAX_BYTES, FailureEvidence, HostFacts
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunGone
from fairlease_schemas.telemetry import GpuProcess, GpuSample
from tests.agent.bench import Bench, keeper_of, shell, until

pytestmark = pytest.mark.asyncio

TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"


def found(bench: Bench, gone: RunGone) -> FailureEvidence:
    """The body that the report names."""
    body = bench.evidence[gone.evidence]
    assert len(body) <= MAX_BYTES
    return msgspec.json.decode(body, type=FailureEvidence)


async def test_a_failed_run_leaves_its_last_lines_and_what_its_host_was_like(bench: Bench) -> None:
    # rule: 8.4
    part = bench.part(
        "a", shell(f"echo one; echo token is {TOKEN}; printf '\\033[31mthree\\033[0m\\r50%%\\r99%%'; exit 3")
    )
    bench.order(part)
    gone = await bench.gone(part)
    kept = found(bench, gone)
    assert (kept.attempt, kept.host, kept.end, kept.exit_code) == (part.attempt, "host-001", End.FAILED, 3)
    assert kept.lines == ("one", "token is [redacted]", "three", "50%", "99%")
    assert all(getattr(kept.facts, name) is not None for name in HostFacts.__struct_fields__)
    assert kept.gpus == ()


@pytest.mark.parametrize(
    ("gone", "is_so"),
    [
        pytest.param(Gone(end=End.FAILED, exit_code=1), True, id="failed"),
        pytest.param(Gone(end=End.START_FAILED), True, id="a start that failed, or a resume that was refused"),
        pytest.param(Gone(end=End.LOST), True, id="lost"),
        pytest.param(Gone(end=End.FAULT), True, id="a fault"),
        pytest.param(Gone(end=End.CANCELLED, exit_code=143, detail="timed-out"), True, id="timed out"),
        pytest.param(Gone(end=End.CANCELLED, exit_code=143, detail="preempted"), False, id="preempted"),
        pytest.param(Gone(end=End.CANCELLED, exit_code=143, detail="cancelled"), False, id="cancelled"),
        pytest.param(Gone(end=End.SUCCEEDED, exit_code=0), False, id="succeeded"),
    ],
)
async def test_evidence_is_kept_of_the_ends_that_nobody_wished(gone: Gone, is_so: bool) -> None:
    # rule: 8.4
    assert failure.is_failure(gone) == is_so


async def test_an_end_that_somebody_wished_leaves_nothing(bench: Bench) -> None:
    # rule: 8.4
    part = bench.part("a", shell("echo secret; exit 0"))
    bench.order(part)
    assert (await bench.gone(part)).evidence == ""
    assert bench.evidence == {}


async def test_a_run_that_never_began_leaves_its_host(bench: Bench) -> None:
    # rule: 8.4
    part = bench.part("a", ("/no/such/program",))
    bench.order(part)
    kept = found(bench, await bench.gone(part))
    assert (kept.end, kept.lines) == (End.START_FAILED, ())
    assert kept.detail == "cannot run '/no/such/program': No such file or directory"


async def ended_without_a_bus(bench: Bench) -> tuple[RunOrder, Path]:
    """A run that failed while the bus was away, and where its evidence lies."""
    part = bench.part("a", shell("echo once; while [ ! -e ../end ]; do sleep 0.01; done; exit 1"))
    bench.order(part)
    await bench.printed(part, "once")
    bench.is_bus_there = False
    (bench.directory(part).path / "end").touch()
    path = bench.directory(part).path / layout.EVIDENCE
    await until(path.exists, "it is gathered")
    return part, path


async def test_a_repeated_report_names_the_same_body_also_after_a_restart(bench: Bench) -> None:
    # rule: 8.4
    part, path = await ended_without_a_bus(bench)
    before = path.read_bytes()
    bench.restart()
    bench.is_bus_there = True
    gone = await bench.gone(part)
    assert bench.evidence == {gone.evidence: before}


async def test_half_a_body_that_a_power_cut_left_is_gathered_anew(bench: Bench) -> None:
    # rule: 8.4
    part, path = await ended_without_a_bus(bench)
    path.write_bytes(path.read_bytes()[:20])
    bench.restart()
    bench.is_bus_there = True
    assert found(bench, await bench.gone(part)).lines == ("once",)


async def test_a_bus_that_refuses_the_body_still_gets_the_report(bench: Bench) -> None:
    # rule: 8.4
    bench.refuses_evidence = True
    part = bench.part("a", shell("exit 1"))
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, bench.evidence) == (End.FAILED, {})


async def test_a_driver_that_hangs_costs_the_gpus_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 8.4
    monkeypatch.setattr(failure, "PATIENCE_S", 0.2)
    leave = threading.Event()
    looks: list[int] = []

    def hang() -> tuple[GpuSample, ...]:
        looks.append(1)
        leave.wait(60)
        return ()

    monkeypatch.setattr(bench.devices, "samples", hang)
    parts = [bench.part(name, shell("echo seen; exit 1"), gpus=[k]) for k, name in enumerate(("a", "b"))]
    try:
        bench.order(*parts)
        for part in parts:
            assert found(bench, await bench.gone(part)).lines == ("seen",)
    finally:
        leave.set()
    assert looks == [1], "while one look hangs nobody begins another"


async def test_of_the_gpus_only_those_of_the_part_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 8.4
    uuids = bench.devices.inventory().gpus
    processes = tuple(GpuProcess(pid=pid) for pid in range(64))
    sampled = tuple(
        GpuSample(gpu=uuid, temperature_c=60 + k, memory_used_mib=9, processes=processes, ecc_uncorrected=k)
        for k, uuid in enumerate(uuids)
    )
    monkeypatch.setattr(bench.devices, "samples", lambda: sampled)
    part = bench.part("a", shell("exit 1"), gpus=[2, 5])
    bench.order(part)
    few = processes[: failure.MAX_PROCESSES]
    wanted = tuple(msgspec.structs.replace(sampled[k], processes=few) for k in (2, 5))
    assert found(bench, await bench.gone(part)).gpus == wanted


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("i=0; while [ $i -lt 400 ]; do printf '%0900d\\n' $i; i=$((i+1)); done; exit 1", id="long lines"),
        pytest.param("head -c 300000 /dev/zero; exit 1", id="nothing but controls"),
        pytest.param("head -c 300000 /dev/urandom; exit 1", id="anything"),
        pytest.param(
            "head -c 90000 /dev/zero | tr '\\0' '\"'; exit 1", id="one line without an end, all of it escaped"
        ),
        pytest.param(
            "i=0; while [ $i -lt 90 ]; do printf '\\360\\237\\230\\200%.0s' $(seq 500); echo; i=$((i+1)); done; exit 1",
            id="wide letters",
        ),
    ],
)
async def test_whatever_a_job_prints_the_body_is_small(bench: Bench, script: str) -> None:
    # rule: 8.4
    part = bench.part("a", shell(script))
    bench.order(part)
    kept = found(bench, await bench.gone(part))
    assert len(kept.lines) <= failure.MAX_LINES
    assert all(0 < len(line) <= failure.MAX_LINE for line in kept.lines)


async def test_an_end_is_told_whatever_becomes_of_its_evidence(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 8.4

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(bench.host._witness, "evidence", fail)
    monkeypatch.setattr(bench.host._checkpoints, "look", fail)
    part = bench.part("a", shell("exit 3"))
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code, gone.evidence) == (End.FAILED, 3, "")


async def test_an_end_that_could_not_be_found_is_looked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_SWEEP_S", 0.05)
    kill, fails = process.kill_remains, [RuntimeError("nobody thought of it")]

    async def fail_once(*words: Any) -> None:  # noqa: ANN401 - handed on as they are
        if fails:
            raise fails.pop()
        await kill(*words)

    monkeypatch.setattr(process, "kill_remains", fail_once)
    part = bench.part("a", shell("echo ready; sleep 1000"))
    bench.order(part)
    await bench.printed(part, "ready")
    os.kill(keeper_of(bench.directory(part)).pid, signal.SIGKILL)
    assert (await bench.gone(part)).end is End.LOST
    assert fails == []


async def test_a_start_that_nobody_thought_could_fail_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_RETRY_S", 0.05)
    fetch, fails = bench.host._fetch, [RuntimeError("nobody thought of it")]

    async def fail_once(digest: str) -> Command:
        if fails:
            raise fails.pop()
        return await fetch(digest)

    monkeypatch.setattr(bench.host, "_fetch", fail_once)
    part = bench.part("a")
    bench.order(part)
    assert (await bench.gone(part)).end is End.SUCCEEDED


async def test_a_start_that_always_fails_in_a_way_that_nobody_thought_of_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_RETRY_S", 0.05)
    asked: list[str] = []

    async def fail(digest: str) -> Command:
        asked.append(digest)
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(bench.host, "_fetch", fail)
    part = bench.part("a")
    bench.order(part)
    gone = await bench.gone(part)
    told = "it cannot be prepared here: RuntimeError('nobody thought of it')"
    assert (gone.end, gone.detail) == (End.START_FAILED, told)
    assert len(asked) == host.TRIES


async def test_more_gpus_than_a_body_has_room_for_are_left_out() -> None:
    # rule: 8.4
    gpus = tuple(GpuSample(gpu=f"GPU-{k}", problem="\u00e9" * failure.MAX_LINE) for k in range(200))
    evidence = FailureEvidence(attempt="a", host="h", end=End.FAULT, at_ms=1, lines=("x",) * 50, gpus=gpus)
    kept = msgspec.json.decode(failure.bounded(evidence), type=FailureEvidence)
    assert kept == msgspec.structs.replace(evidence, lines=(), gpus=gpus[:12])
    assert len(failure.bounded(evidence)) <= MAX_BYTES


async def test_a_line_of_which_the_beginning_was_cut_is_left_out(tmp_path: Path) -> None:
    # rule: 8.4
    (tmp_path / layout.LOG).write_text("head\n")
    (tmp_path / f"{layout.LOG}.{100:020d}").write_text("f-a-token that began before\nwhole\n")
    assert failure.last_lines(str(tmp_path)) == ("whole",)
    (tmp_path / layout.LOG).write_text("x" * 70_000 + "\nlast\n")
    (tmp_path / f"{layout.LOG}.{100:020d}").unlink()
    assert failure.last_lines(str(tmp_path)) == ("last",)


async def test_a_run_that_printed_nothing_has_no_lines(tmp_path: Path) -> None:
    # rule: 8.4
    assert failure.last_lines(str(tmp_path)) == ()


async def test_an_outbox_gives_up_only_on_a_bus_that_is_there() -> None:
    # rule: 8.4
    says: list[type[BusAway]] = [Disconnected] * 5 + [BusAway, Disconnected, BusAway]
    heard: list[str] = []

    async def publish(kind: str, _body: bytes) -> None:
        if kind == "evidence" and says:
            raise says.pop(0)("no")
        heard.append(kind)

    outbox = Outbox(publish)
    outbox.put("evidence", b"{}", lambda: heard.append("acked"), tries=2)
    outbox.put("run-gone", b"{}", lambda: heard.append("gone acked"))
    sender = asyncio.get_running_loop().create_task(outbox.run())
    await until(lambda: "gone acked" in heard, "the report is through")
    sender.cancel()
    assert (heard, says) == (["run-gone", "gone acked"], [])
