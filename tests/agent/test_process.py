"""Processes by who they are."""

import asyncio
import os
import signal
import subprocess

import pytest

from fairlease.agent import layout, process
from fairlease.agent.process import Process, Watch, boot_id, hold, is_alive, remains, tell
from tests.agent.bench import until


def own() -> Process:
    stat = layout.read_stat(os.getpid())
    assert stat is not None
    return Process(os.getpid(), stat[3])


def sleeper(**env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True, env=env)


def named(child: subprocess.Popen[bytes]) -> Process:
    stat = layout.read_stat(child.pid)
    assert stat is not None
    return Process(child.pid, stat[3])


def test_a_process_is_not_taken_for_another_that_has_its_number() -> None:
    assert is_alive(own())
    other = Process(own().pid, own().start - 1)
    assert not is_alive(other)
    assert hold(other) is None
    tell(other, signal.SIGKILL)  # would end this test


def test_a_zombie_is_not_alive() -> None:
    child = sleeper()
    who = named(child)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert layout.read_stat(child.pid) is not None
    assert not is_alive(who)
    child.wait()


def test_a_boot_has_one_id() -> None:
    assert boot_id() == boot_id()
    assert len(bytes.fromhex(boot_id())) == 16


@pytest.mark.asyncio
async def test_remains_are_found_by_session_and_by_mark_and_nothing_else_is() -> None:
    leader, escaped, stranger = sleeper(), sleeper(MARK="run-1"), sleeper(MARK="run-10")
    try:
        for child in (escaped, stranger):
            await until(lambda child=child: process._environment(child.pid) != [b""], "its exec is through")  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        found = remains(named(leader), b"MARK=run-1")
        assert found == sorted([named(leader), named(escaped)], key=lambda who: who.pid)
    finally:
        for child in (leader, escaped, stranger):
            child.kill()
            child.wait()


@pytest.mark.asyncio
@pytest.mark.parametrize("has_pidfd", [True, False], ids=["with pidfds", "without"])
async def test_a_death_is_seen_once(monkeypatch: pytest.MonkeyPatch, has_pidfd: bool) -> None:
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.setattr(process, "LOOK_AGAIN_S", 0.01)
    child = sleeper()
    deaths: list[int] = []
    Watch(named(child), lambda: deaths.append(child.pid))
    forgotten = Watch(named(child), lambda: deaths.append(0))
    forgotten.cancel()
    await asyncio.sleep(0)
    assert deaths == []
    tell(named(child), signal.SIGKILL)
    await until(lambda: deaths, "the death is seen")
    Watch(Process(child.pid, 1), lambda: deaths.append(1))
    await until(lambda: len(deaths) == 2, "a process that is gone is seen at once")
    assert deaths == [child.pid, 1]
    child.wait()
