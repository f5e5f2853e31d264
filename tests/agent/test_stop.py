"""The stop (8.1): notice, the declared signal to those who catch it, grace, TERM, KILL of everything."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairlease.agent import cgroup, layout
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunGone
from tests.agent.bench import Bench, alive, keeper_of, marked, python, shell, until

pytestmark = pytest.mark.asyncio

LISTENS = """
import os, signal, sys, time
def heard(number, _):
    os.write(1, f"{signal.Signals(number).name} {os.path.exists(os.environ['FAIRLEASE_PREEMPT_FILE'])}\\n".encode())
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), heard)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""

DAEMON = """
import os, signal, sys, time
def daemon(env):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True)"
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code + "; time.sleep(1000)"], env)
        os._exit(0)
    os.wait()
"""

FORKS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
for _ in range(400):
    if os.fork():
        break
    os.setsid()
    print(os.getpid(), flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.fixture(params=["cgroup", "descent"])
def bench(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Bench]:
    """A host with cgroups, where the machine has any, and one without."""
    if request.param == "descent":
        bench.host._runs._cgroups = ""
    return bench


def stop_of(bench: Bench, part: RunOrder) -> dict[str, int]:
    found: dict[str, int] = msgspec.json.decode((bench.directory(part).path / layout.STOP).read_bytes())
    return found


@pytest.mark.parametrize(
    ("declared", "heard"),
    [
        pytest.param("USR1", ["USR1", "TERM"], id="USR1"),
        pytest.param("USR2", ["USR2", "TERM"], id="USR2"),
        pytest.param("TERM", ["TERM", "TERM"], id="TERM"),
        pytest.param("none", ["TERM"], id="none: the file alone"),
    ],
)
async def test_the_declared_signal_comes_with_the_notice_and_term_after_the_grace(
    bench: Bench, declared: str, heard: list[str]
) -> None:
    # rule: 8.1
    command = (*python(LISTENS), "SIGUSR1", "SIGUSR2", "SIGTERM")
    part = bench.part("a", command, checkpoint={"signal": declared}, margin_ms=300)
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=200))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 137)
    assert bench.log(part).split("\n")[1:-1] == [f"SIG{name} True" for name in heard]


async def test_a_signal_is_not_sent_to_those_who_would_die_of_it(bench: Bench) -> None:
    # rule: 8.1
    script = "sleep 1000 & other=$!; trap 'kill -0 $other && echo alive; kill -KILL $other; exit 6' USR1; "
    part = bench.part("a", shell(script + "echo ready; while :; do sleep 0.01; done"), checkpoint={"signal": "USR1"})
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=60_000))
    assert (await bench.gone(part)).exit_code == 6
    assert bench.log(part) == "ready\nalive\n"


async def test_a_process_deep_below_that_left_the_session_is_told_too(bench: Bench) -> None:
    # rule: 8.1
    deep = "trap 'echo saved > saved; exit 0' USR2; echo ready; while :; do sleep 0.01; done"
    part = bench.part("a", shell(f'setsid sh -c "{deep}" & wait; exit 4'), checkpoint={"signal": "USR2"})
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=60_000))
    assert (await bench.gone(part)).exit_code == 4
    assert (bench.directory(part).path / layout.WORK / "saved").exists()


async def test_the_notice_says_why_and_until_when_before_any_signal(bench: Bench) -> None:
    # rule: 8.1
    script = "trap 'cat $FAIRLEASE_PREEMPT_FILE; exit 0' USR1; echo ready; while :; do sleep 0.01; done"
    part = bench.part("a", shell(script), checkpoint={"signal": "USR1"})
    bench.order(part)
    await bench.printed(part, "ready")
    assert not bench.directory(part).preempt_file.exists()
    bench.order(bench.stop(part, grace_ms=60_000, reason="preempted"))
    await bench.gone(part)
    said = msgspec.json.decode(bench.log(part).removeprefix("ready\n"))
    assert said == stop_of(bench, part)
    assert said["reason"] == "preempted"


@pytest.mark.parametrize(
    ("margin_ms", "kill_after_ms"),
    [pytest.param(30_000, 10_000, id="10 s"), pytest.param(4_000, 2_000, id="half of a margin that is short")],
)
async def test_the_whole_stop_fits_grace_and_stop_margin(bench: Bench, margin_ms: int, kill_after_ms: int) -> None:
    # rule: 8.1
    part = bench.part("a", shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"))
    bench.order(part)
    await bench.printed(part, "ready")
    before_ms = layout.boot_ms()
    bench.order(msgspec.structs.replace(bench.stop(part, grace_ms=5_000), margin_ms=margin_ms))
    said = stop_of(bench, part)
    assert before_ms + 5_000 <= said["term_at_ms"] <= layout.boot_ms() + 5_000
    assert said["kill_at_ms"] - said["term_at_ms"] == kill_after_ms
    await bench.gone(part)


async def test_a_halted_job_is_woken_to_hear_it(bench: Bench) -> None:
    # rule: 8.1
    part = bench.part("a", shell("trap 'exit 8' TERM; echo ready; while :; do sleep 0.01; done"))
    bench.order(part)
    await bench.printed(part, "ready")
    leader = bench.directory(part).leader()
    assert leader is not None
    os.kill(leader.pid, signal.SIGSTOP)
    bench.order(bench.stop(part, grace_ms=60_000))
    assert (await bench.gone(part)).exit_code == 8


async def test_a_daemon_without_session_parents_and_environment_is_killed_with_its_job(bench: Bench) -> None:
    # rule: 8.1
    code = DAEMON + "daemon({})\nprint('ready', flush=True)\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(1000)"
    part = bench.part("a", python(code))
    bench.order(part)
    await until(lambda: len(bench.log(part).split()) == 2, "both stand")
    (pid,) = [int(word) for word in bench.log(part).split() if word.isdigit()]
    assert alive(pid)
    bench.order(bench.stop(part))
    assert (await bench.gone(part)).exit_code == 137
    assert not alive(pid)


async def test_a_daemon_does_not_outlive_a_job_that_ends_by_itself(bench: Bench) -> None:
    # rule: 8.1
    wait = "\nwhile os.stat('../log').st_size == 0: time.sleep(0.01)\nsys.exit(3)"
    part = bench.part("a", python(DAEMON + "daemon({})" + wait))
    bench.order(part)
    assert (await bench.gone(part)).exit_code == 3
    assert not alive(int(bench.log(part)))


async def test_a_daemon_of_a_job_whose_keeper_was_killed_is_found(bench: Bench) -> None:
    """By its environment, or with a cgroup also when it has shed that."""
    # rule: 8.1
    env = "{}" if bench.host._runs._cgroups else "dict(os.environ)"
    part = bench.part("a", python(DAEMON + f"daemon({env})\ntime.sleep(1000)"))
    bench.order(part)
    await until(lambda: bench.log(part).strip(), "the daemon stands")
    os.kill(keeper_of(bench.directory(part)).pid, signal.SIGKILL)
    assert (await bench.gone(part)).end is End.LOST
    assert not alive(int(bench.log(part)))
    await until(lambda: marked(bench.home) == [], "its keeper leaves too")


async def test_a_tree_that_goes_on_forking_is_killed_whole(bench: Bench) -> None:
    # rule: 8.1
    part = bench.part("a", python(FORKS))
    bench.order(part)
    await until(lambda: len(bench.log(part).split()) > 20, "it forks")
    bench.order(bench.stop(part))
    await bench.gone(part)
    assert [pid for pid in map(int, bench.log(part).split()) if alive(pid)] == []
    await until(lambda: marked(bench.home) == [], "its keeper leaves too")


async def test_what_a_job_left_behind_has_the_rest_of_the_grace_and_no_more(bench: Bench) -> None:
    # rule: 8.1
    script = (
        "(trap '' TERM; while :; do sleep 0.01; done) & trap 'exit 0' USR1; echo ready; while :; do sleep 0.01; done"
    )
    part = bench.part("a", shell(script), checkpoint={"signal": "USR1"})
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=300))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 0)
    assert layout.boot_ms() >= stop_of(bench, part)["kill_at_ms"]
    await until(lambda: marked(bench.home) == [], "its keeper leaves too")


async def test_a_job_that_dies_before_its_notice_ends_once_and_by_its_own_code(bench: Bench) -> None:
    # rule: 8.1
    part = bench.part("a", shell("echo ready; while [ ! -e ../end ]; do sleep 0.01; done; exit 9"))
    bench.order(part)
    await bench.printed(part, "ready")
    keeper = keeper_of(bench.directory(part)).pid
    os.kill(keeper, signal.SIGSTOP)
    (bench.directory(part).path / "end").touch()
    leader = bench.directory(part).leader()
    assert leader is not None
    await until(lambda: not alive(leader.pid), "it dies while its keeper looks away")
    bench.order(bench.stop(part, grace_ms=60_000))
    os.kill(keeper, signal.SIGCONT)
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.FAILED, 9)
    bench.restart()
    last = bench.part("b")
    bench.order(last)
    await bench.gone(last)
    assert bench.of(part, RunGone) == [gone]


async def test_an_agent_killed_between_notice_and_stop_gives_the_same_notice_again(bench: Bench) -> None:
    # rule: 8.1
    part = bench.part("a", shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"))
    bench.order(part)
    await bench.printed(part, "ready")
    (bench.directory(part).path / "preempt.reserved").rename(bench.directory(part).preempt_file)
    bench.order(bench.stop(part, grace_ms=60_000))
    assert (await bench.gone(part)).exit_code == 5


async def test_a_job_begins_unmasked_also_when_its_agent_was_not(bench: Bench) -> None:
    # rule: 8.1
    ignored = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM})
    part = bench.part("a", shell("grep Sig /proc/self/status"))
    try:
        bench.order(part)
        gone = await bench.gone(part)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        signal.signal(signal.SIGQUIT, ignored)
    assert gone.exit_code == 0
    said = dict(line.split() for line in bench.log(part).splitlines())
    of_the_c_library = 1 << 31 | 1 << 32  # 32 and 33, which no program can set
    assert [int(said[mask], 16) & ~of_the_c_library for mask in ("SigBlk:", "SigIgn:")] == [0, 0]


def is_there(group: str) -> bool:
    return bool(group) and Path(group).exists()


async def test_no_cgroup_is_left_behind(bench: Bench) -> None:
    # rule: 8.1
    ended, killed = bench.part("a"), bench.part("b", shell("echo ready; sleep 1000"), gpus=(1,))
    bench.order(ended, killed)
    await bench.printed(killed, "ready")
    group = bench.directory(killed).group()
    assert bool(group) == bool(bench.host._runs._cgroups)
    leader = bench.directory(killed).leader()
    assert leader is not None
    assert not group or leader.pid in cgroup.members(group)
    os.kill(keeper_of(bench.directory(killed)).pid, signal.SIGKILL)
    for part in (ended, killed):
        await bench.gone(part)
        assert not is_there(bench.directory(part).group())


async def test_a_cgroup_that_a_job_wrote_into_its_record_is_not_believed(bench: Bench) -> None:
    part = bench.part("a")
    bench.order(part)
    await bench.gone(part)
    path = bench.directory(part).path / layout.LEADER
    for group in (
        "/sys/fs/cgroup",
        f"/sys/fs/cgroup/fairlease-{part.attempt}-1/../..",
        "/sys/fs/cgroup/fairlease-job-b-a1-7",
    ):
        path.write_bytes(msgspec.json.encode({"pid": 1, "start": 1, "cgroup": group}))
        assert bench.directory(part).group() == ""
