"""One run from its start to its end, as real processes."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlease.agent import layout, process, runs
from fairlease.agent.process import boot_id
from fairlease.agent.record import Facts, Gone, RunDirectory
from fairlease_schemas.job import End
from fairlease_schemas.reports import RunGone, RunStarted
from tests.agent.bench import Bench, alive, keeper_of, marked, python, shell, until

pytestmark = pytest.mark.asyncio

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.02; done"


@pytest.mark.parametrize(
    ("script", "end", "exit_code"),
    [
        pytest.param("exit 0", End.SUCCEEDED, 0, id="0 is success"),
        pytest.param("exit 85", End.FAILED, 85, id="any other code is failure, with the code"),
        pytest.param("kill -KILL $$", End.FAILED, 137, id="a KILL from elsewhere is 128 + 9"),
        pytest.param("kill -SEGV $$", End.FAILED, 139, id="a crash is 128 + 11"),
    ],
)
async def test_a_run_ends_as_its_first_process_does(bench: Bench, script: str, end: End, exit_code: int) -> None:
    part = bench.part("a", shell(script))
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code, gone.token) == (end, exit_code, part.token)
    assert len(bench.of(part, RunStarted)) == 1


@pytest.mark.parametrize(
    ("mode", "text", "reason"),
    [
        pytest.param(None, "", "No such file or directory", id="not there"),
        pytest.param(0o644, "#!/bin/sh\n", "Permission denied", id="not executable"),
        pytest.param(0o755, "what is this", "Exec format error", id="no program"),
        pytest.param(0o755, "#!/no/such/interpreter\n", "No such file or directory", id="its interpreter not there"),
    ],
)
async def test_what_cannot_be_executed_is_a_failed_start(
    bench: Bench, tmp_path: Path, mode: int | None, text: str, reason: str
) -> None:
    program = tmp_path / "program"
    if mode is not None:
        program.write_text(text)
        program.chmod(mode)
    part = bench.part("a", (str(program),))
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.START_FAILED, None)
    assert gone.detail == f"cannot run '{program}': {reason}"
    assert bench.of(part, RunStarted) == []


async def test_a_name_is_looked_up_on_the_path_of_the_job(bench: Bench) -> None:
    part = bench.part("a", ("true",), env={"PATH": "/nowhere"})
    bench.order(part)
    assert (await bench.gone(part)).detail == "cannot run 'true': No such file or directory"


async def test_the_job_begins_with_no_signal_masked_or_ignored_and_no_file_but_the_three(bench: Bench) -> None:
    part = bench.part("a", shell("cat /proc/self/status; echo fds $(ls /proc/self/fd); echo cwd $(pwd)"))
    bench.order(part)
    await bench.gone(part)
    said = dict(line.split(maxsplit=1) for line in bench.log(part).splitlines() if len(line.split()) > 1)
    of_the_c_library = 1 << 31 | 1 << 32  # 32 and 33, which no program can set
    for mask in ("SigBlk:", "SigIgn:", "SigCgt:"):
        assert int(said[mask], 16) & ~of_the_c_library == 0, mask
    assert said["fds"] == "0 1 2 3"  # 3 is the directory being listed
    assert said["cwd"] == str(bench.directory(part).path / layout.WORK)


async def test_the_job_leads_a_session_and_a_group_of_its_own(bench: Bench) -> None:
    part = bench.part("a", python("import os; print(os.getpid() == os.getsid(0) == os.getpgid(0))"))
    bench.order(part)
    await bench.gone(part)
    assert bench.log(part) == "True\n"


async def test_the_command_line_is_passed_on_as_it_is(bench: Bench) -> None:
    words = ("", " a  b ", "$HOME", "\u00fc\U0001f600", "-n")
    part = bench.part("a", python("import sys; print(sys.argv[1:])") + words)
    bench.order(part)
    await bench.gone(part)
    assert bench.log(part) == f"{list(words)}\n"


def words_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


async def test_the_command_and_its_environment_are_not_on_disk_and_in_no_argument_list(bench: Bench) -> None:
    part = bench.part("a", shell(": s3cret; echo ready; sleep 1000"), env={"KEY": "s3cret"})
    bench.order(part)
    await bench.printed(part, "ready")
    assert b"s3cret" not in words_of(keeper_of(bench.directory(part)).pid)
    assert [path for path in bench.home.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()] == []


async def test_a_stubborn_job_is_killed_after_its_grace_and_a_repeat_does_not_begin_it_anew(bench: Bench) -> None:
    part = bench.part("a", shell(STUBBORN))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=400))
    first = (bench.directory(part).path / layout.STOP).read_bytes()
    kill_at_ms = int(first.split(b'"kill_at_ms":')[1].split(b"}")[0])
    for _ in range(20):
        bench.order(bench.stop(part, grace_ms=60_000, reason="asked again"))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code, gone.detail) == (End.CANCELLED, 137, "asked")
    assert layout.boot_ms() >= kill_at_ms
    assert (bench.directory(part).path / layout.STOP).read_bytes() == first


async def test_a_job_that_saves_itself_within_the_grace_ends_with_its_own_code(bench: Bench) -> None:
    save = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('ready', flush=True); time.sleep(60)"
    part = bench.part("a", python("import signal, sys, time; " + save))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=60_000))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 7)
    assert bench.directory(part).preempt_file.exists()


async def test_a_program_behind_a_shell_is_told_and_the_shell_that_would_die_of_it_is_not(bench: Bench) -> None:
    save = "trap 'sleep 0.2; echo saved; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    part = bench.part("a", shell(f'/bin/sh -c "{save}"; exit $?'))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=60_000))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 5)
    assert bench.log(part) == "ready\nsaved\n"


async def test_what_a_job_leaves_in_the_background_is_killed_before_it_is_gone(bench: Bench) -> None:
    """In its group, in a group of its own, and in a session of its own whose parent has left."""
    script = """
sleep 1000 & echo $!
setsid sleep 1000 & echo $!
(setsid sh -c 'echo $$; sleep 1000 & echo $!; wait' &)
while [ $(wc -l < ../log) -lt 4 ]; do sleep 0.01; done
exit 4
"""
    part = bench.part("a", shell(script))
    bench.order(part)
    gone = await bench.gone(part)
    pids = [int(line) for line in bench.log(part).split()]
    assert gone.exit_code == 4
    assert len(pids) == 4
    assert [pid for pid in pids if alive(pid)] == []


async def test_a_keeper_ignores_what_ends_agents(bench: Bench) -> None:
    part = bench.part("a", shell("echo ready; while [ ! -e done ]; do sleep 0.01; done; exit 3"))
    bench.order(part)
    await bench.printed(part, "ready")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(keeper_of(bench.directory(part)).pid, number)
    (bench.directory(part).path / layout.WORK / "done").touch()
    assert (await bench.gone(part)).exit_code == 3


async def test_a_run_whose_keeper_was_killed_is_lost_and_nothing_of_it_is_left(bench: Bench) -> None:
    part = bench.part("a", shell("setsid sleep 1000 & sleep 1000 & echo ready; wait"))
    bench.order(part)
    await bench.printed(part, "ready")
    await until(lambda: len(marked(bench.home)) >= 4, "keeper, shell and both sleeps stand")
    os.kill(keeper_of(bench.directory(part)).pid, signal.SIGKILL)
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.LOST, None)
    assert marked(bench.home) == []


async def test_an_adopted_run_whose_keeper_is_killed_is_lost_too(bench: Bench) -> None:
    part = bench.part("a", shell("echo ready; sleep 1000"))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.restart()
    os.kill(keeper_of(bench.directory(part)).pid, signal.SIGKILL)
    assert (await bench.gone(part)).end is End.LOST
    assert marked(bench.home) == []


async def test_a_run_that_ended_while_no_agent_was_there_is_reported_with_its_code(bench: Bench) -> None:
    part = bench.part("a", shell("echo ready; while [ ! -e done ]; do sleep 0.01; done; exit 3"))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.close()
    (bench.directory(part).path / layout.WORK / "done").touch()
    await until(lambda: bench.directory(part).gone(), "the keeper writes the end")
    bench.restart()
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.FAILED, 3)


async def test_an_adopted_run_can_be_stopped_and_keeps_its_first_grace(bench: Bench) -> None:
    part = bench.part("a", shell(STUBBORN))
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=300))
    bench.restart()
    bench.order(bench.stop(part, grace_ms=60_000, reason="asked again"))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code, gone.detail) == (End.CANCELLED, 137, "asked")


# the late shim -------------------------------------------------------------------------------------
def prepared(bench: Bench) -> RunDirectory:
    """What an agent that dies right after, or right before, it spawned a shim leaves on disk."""
    bench.close()
    part = bench.part("late")
    facts = Facts(
        attempt=part.attempt,
        job=part.job,
        token=part.token,
        digest=part.digest,
        gpus=part.gpus,
        hosts=part.hosts,
        rank=0,
        boot=boot_id(),
    )
    return RunDirectory.create(bench.home / "runs", facts)


def late_shim(bench: Bench, directory: RunDirectory) -> int:
    """The shim that the dead agent spawned; should its job run, it leaves a mark."""
    return bench.host._runs._spawn(directory.path, shell("touch ran"), {"PATH": os.environ["PATH"]})


async def left(pid: int) -> None:
    await until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, "the shim leaves")


def waits_for_a_lock(pid: int) -> bool:
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def has_run(directory: RunDirectory) -> bool:
    return (directory.path / layout.WORK / "ran").exists()


async def test_a_shim_that_comes_after_the_next_agent_starts_nothing(bench: Bench) -> None:
    directory = prepared(bench)
    bench.restart()
    part = bench.part("late")
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.START_FAILED, "interrupted before its command began")
    await left(late_shim(bench, directory))
    assert not has_run(directory)
    assert directory.claim() is None
    assert bench.of(part, RunGone) == [gone]


async def test_a_shim_that_waits_for_the_lock_while_the_agent_decides_starts_nothing(bench: Bench) -> None:
    directory = prepared(bench)
    lock = directory.lock()
    assert lock is not None
    shim = late_shim(bench, directory)
    await until(lambda: waits_for_a_lock(shim), "the shim waits")
    directory.conclude(Gone(end=End.START_FAILED))
    os.close(lock)
    await left(shim)
    assert not has_run(directory)
    assert directory.claim() is None


async def test_a_shim_that_was_first_is_adopted_by_the_next_agent(bench: Bench) -> None:
    directory = prepared(bench)
    shim = late_shim(bench, directory)
    await until(directory.claim, "the shim claims")
    bench.restart()
    gone = await bench.gone(bench.part("late"))
    assert (gone.end, gone.exit_code) == (End.SUCCEEDED, 0)
    assert has_run(directory)
    await left(shim)


async def test_a_shim_that_finds_a_stop_never_starts_its_job(bench: Bench) -> None:
    directory = prepared(bench)
    directory.order_stop("asked", 0, 0)
    await left(late_shim(bench, directory))
    bench.restart()
    gone = await bench.gone(bench.part("late"))
    assert (gone.end, gone.detail) == (End.CANCELLED, "never started")
    assert not has_run(directory)


async def test_a_shim_killed_before_its_claim_is_a_failed_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = bench.home / "broken.py"
    broken.write_text("raise SystemExit('no such luck')")
    monkeypatch.setattr(runs, "_SHIM", broken)
    part = bench.part("a")
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.START_FAILED, "interrupted before its command began (no such luck)")


@pytest.mark.parametrize(
    "files",
    [
        pytest.param((layout.CLAIM, layout.LEADER, layout.STARTED), id="while it ran"),
        pytest.param((layout.CLAIM,), id="before its command began"),
    ],
)
async def test_a_run_that_a_restart_of_the_machine_ended_is_the_hosts_fault(
    bench: Bench, files: tuple[str, ...]
) -> None:
    # rule: 1.8 8.4
    directory = prepared(bench)
    facts = msgspec.structs.replace(directory.facts(), boot="0" * 32)
    layout.write_whole(str(directory.path / layout.RUN), msgspec.json.encode(facts), is_durable=False)
    for name in files:
        layout.write_whole(str(directory.path / name), b'{"pid": 1, "start": 1}', is_durable=False)
    bench.restart()
    gone = await bench.gone(bench.part("late"))
    assert (gone.end, gone.detail) == (End.FAULT, "the machine was restarted")


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"\xff", b"[" * 100_000, None, os.mkfifo, Path.mkdir],
    ids=["empty", "{}", "bytes", "brackets", "gone", "pipe", "directory"],
)
async def test_a_run_whose_record_was_spoiled_costs_nobody_else_anything(
    bench: Bench, caplog: pytest.LogCaptureFixture, data: bytes | Callable[[Path], None] | None
) -> None:
    spoiled, sound = bench.part("a"), bench.part("b", gpus=(1,))
    bench.order(spoiled, sound)
    for part in (spoiled, sound):
        await bench.gone(part)
    record = bench.directory(spoiled).path / layout.RUN
    record.unlink()
    if callable(data):
        data(record)
    elif data is not None:
        record.write_bytes(data)
    bench.restart()
    assert bench.host.run(sound.attempt) is not None
    run = bench.host.run(spoiled.attempt)
    assert run is not None, "the host's own note of it is good"
    assert run.facts.token == spoiled.token
    (bench.home / "begun" / spoiled.attempt).unlink()
    bench.restart()
    assert bench.host.run(spoiled.attempt) is None
    assert "it waits for an order" in caplog.text
    bench.order(spoiled, sound)
    found = bench.host.run(spoiled.attempt)
    assert found is not None
    assert found.gone is not None
    assert [len(bench.of(spoiled, kind)) for kind in (RunStarted, RunGone)] == [1, 1], "never begun or told again"


@pytest.mark.parametrize("name", [layout.LEADER, layout.CLAIM, layout.EXIT, layout.GONE])
async def test_a_file_of_a_run_that_its_job_spoiled_keeps_nothing_alive(bench: Bench, name: str) -> None:
    part, other = bench.part("a", shell("echo ready; sleep 1000")), bench.part("b", gpus=(1,))
    bench.order(part)
    await bench.printed(part, "ready")
    directory = bench.directory(part)
    keeper = keeper_of(directory)
    claim = (directory.path / layout.CLAIM).read_bytes()
    (directory.path / name).write_bytes(b'{"x": ' + b"[" * 10_000)
    bench.restart()
    bench.order(part, other)
    assert (await bench.gone(other)).end is End.SUCCEEDED
    os.kill(keeper.pid, signal.SIGKILL)
    assert (await bench.gone(part)).end is End.LOST
    assert marked(bench.home) == []
    (directory.path / layout.CLAIM).write_bytes(claim)  # the bench looks there for what to clear away


# a full disk ---------------------------------------------------------------------------------------
async def test_what_a_keeper_says_until_the_command_runs_stands_in_bytes_that_were_reserved(bench: Bench) -> None:
    part = bench.part("a", shell("sleep 1000"))
    bench.order(part)
    await bench.started(part)
    path = bench.directory(part).path
    said = (layout.CLAIM, layout.LEADER, layout.STARTED)
    assert [(path / name).stat().st_size for name in said] == [layout.RESERVED_BYTES] * 3
    assert sorted(one.name for one in path.glob("*.reserved")) == [layout.RESERVED, "preempt.reserved"]


async def test_a_full_disk_keeps_no_keeper_from_saying_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / layout.CLAIM_RESERVED).write_bytes(b" " * layout.RESERVED_BYTES)
    monkeypatch.chdir(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(layout, "write_whole", full)
    layout.tell(layout.CLAIM, layout.identity(os.getpid()), reserve=layout.CLAIM_RESERVED)
    claim = RunDirectory(tmp_path).claim()
    assert claim is not None
    assert process.is_alive(claim)
    with pytest.raises(OSError, match="no room"):
        layout.tell(layout.LEADER, layout.identity(os.getpid()), reserve=layout.LEADER_RESERVED)
