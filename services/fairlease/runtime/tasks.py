"""Tasks that end together, and that really end.

Not `asyncio.TaskGroup`, because it cancels once: on Python 3.11 `asyncio.wait_for`, which the client
uses in every request, returns its result and forgets a cancellation that comes at the same moment.
Here a task is cancelled until it is gone.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

_AGAIN_S: Final = 0.05


class Tasks:
    """A set of tasks. The first error of any of them is what `watch` raises."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._failed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def watch(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set; raises the first error of a task when that comes before."""
        waiting = [asyncio.create_task(event.wait()) for event in (stop, self._failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._error is not None:
            raise self._error

    async def end(self) -> None:
        """Cancels all, and returns when all are gone."""
        await end(self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._error is None:
            self._error = error
            self._failed.set()


def cancellations() -> int:
    """How often this task was asked to end, for `heed_cancellation` in what may also run while it ends."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def heed_cancellation(before: int = 0) -> None:
    """Ends a wait that was called off, although the cancellation got lost; asyncio.CancelledError.

    `asyncio.wait_for` drops one that comes in the same turn of the loop as what it waits for. The task still knows that
    it was asked to end, and how often: the first `before` times it heard.
    """
    if cancellations() > before:
        raise asyncio.CancelledError


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels these tasks until they are gone; their errors are theirs."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        gone, left = await asyncio.wait(left, timeout=_AGAIN_S)
        for task in gone:
            if not task.cancelled():
                task.exception()  # looked at, or the loop would complain that nobody did
