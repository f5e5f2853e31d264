"""A cancellation that a library lost, as `asyncio.wait_for` of Python 3.11 may, holds nobody up."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlease.cli import up
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.tasks import cancellations, heed_cancellation
from fairlease.trace import player
from tests.services.bench import eventually

LIMIT_S = 5


class Deaf:
    """Work that loses the first cancellation; `lost` says that it did."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def work(self, *_: object, **__: object) -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if self.lost.is_set():
                    raise
                self.lost.set()


async def test_an_up_that_is_ended_before_it_is_ready_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deaf = Deaf()
    signs: dict[int, Callable[[], None]] = {}
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", signs.__setitem__)
    monkeypatch.setattr(up, "keep", lambda *_: None)
    stopped: list[str] = []

    async def start() -> None:
        pass

    async def stop() -> None:
        stopped.append("stopped")

    cell: Any = SimpleNamespace(
        start=start, stop=stop, wait_ready=deaf.work, settings=SimpleNamespace(state_dir=tmp_path)
    )
    served: Any = SimpleNamespace(hosts=0)
    running = asyncio.create_task(up._up(cell, up.Wanted(), served))
    await eventually(lambda: bool(signs))
    # when: Ctrl-C
    await asyncio.sleep(0)
    next(iter(signs.values()))()
    async with asyncio.timeout(LIMIT_S):
        assert await running == 0
    assert (deaf.lost.is_set(), stopped) == (True, ["stopped"])


async def test_a_play_whose_follower_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf, left = Deaf(), []

    class Follower:
        def __init__(self, *_: object) -> None:
            self.renew = None

        async def run(self) -> None:
            await asyncio.sleep(0.01)
            raise OSError("the log is gone")

    class Player:
        def __init__(self, *_: object) -> None:
            self.run = deaf.work

        async def leave_nothing_running(self) -> None:
            left.append("nothing")

    monkeypatch.setattr(player, "Follower", Follower)
    monkeypatch.setattr(player, "_Player", Player)
    link: Any = SimpleNamespace(guard=SimpleNamespace(on_reconnect=lambda _: None))
    cell: Any = SimpleNamespace(settings=SimpleNamespace(subjects=None))
    workload: Any = SimpleNamespace(tasks=())
    with pytest.raises(OSError, match="the log is gone"):
        async with asyncio.timeout(LIMIT_S):
            await player._followed(workload, cell, (link, link), io.BytesIO(), None, 1.0)
    assert (deaf.lost.is_set(), left) == (True, ["nothing"])


async def test_a_connection_that_came_as_its_wait_was_called_off_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # given: the bus answers in the same turn of the loop in which nobody wants the answer any more
    answered, closed = asyncio.Event(), []

    async def connected(*_: object, **__: object) -> None:
        await answered.wait()

    async def close(_: Connection) -> None:
        closed.append("closed")

    monkeypatch.setattr(Connection, "connect", connected)
    monkeypatch.setattr(Connection, "close", close)
    connecting = asyncio.create_task(connect("nats://127.0.0.1:4222", "who", exit_on_close=False))
    await asyncio.sleep(0.01)
    answered.set()
    await asyncio.sleep(0)
    connecting.cancel()
    # then
    await asyncio.wait((connecting,), timeout=LIMIT_S)
    assert (connecting.cancelled(), closed) == (True, ["closed"])


async def test_what_is_done_while_a_task_ends_is_not_called_off_again() -> None:
    async def ends() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            before = cancellations()
            heed_cancellation(before)
            return "cleaned up"
        return ""

    task = asyncio.create_task(ends())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cleaned up"
