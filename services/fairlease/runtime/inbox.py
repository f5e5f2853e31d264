"""Messages that were read and not yet answered by a record (log.md L3, Inboxes).

There are no acknowledgements: the record that answers a message moves the cursor in the fold, and
what lies at or below the cursor is dropped here. Of timers only the newest is kept: it says that all
instants before it have passed, and its answer moves the cursor over the older ones.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from fairlease_schemas.envelope import Answer

MAX_BATCH: Final = 64
MAX_BATCH_BYTES: Final = 96 * 1024
"""What the answers of one record may take; its events repeat much of it, and a record fits 256 KiB."""

MAX_WAITING: Final = 1_024
"""How many may wait before reading pauses: the rest keeps in the bus."""

_ENCODER: Final = msgspec.json.Encoder()


class Pending:
    """Per stream a queue in the order of the stream.

    `full` is set while a whole batch waits, `room` while reading may go on.
    """

    def __init__(self, timers_stream: str = "", batch_size: int = MAX_BATCH) -> None:
        self._timers_stream = timers_stream
        self._batch_size = batch_size
        self._queues: dict[str, deque[tuple[Answer, int]]] = {}
        self._count = 0
        self.full = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    def __len__(self) -> int:
        return self._count

    def add(self, answer: Answer) -> None:
        """Appends one message; sequences of a stream come in ascending order, repeats are dropped."""
        queue = self._queues.setdefault(answer.stream, deque())
        if queue and queue[-1][0].seq >= answer.seq:
            return
        if answer.stream == self._timers_stream:
            self._count -= len(queue)
            queue.clear()
        queue.append((answer, len(_ENCODER.encode(answer))))
        self._count += 1
        self._mark()

    def drop(self, cursor: Callable[[str], int]) -> None:
        """Drops, per stream, what is at or below its cursor: it was answered, by whichever replica."""
        for stream, queue in self._queues.items():
            answered = cursor(stream) if queue else 0
            while queue and queue[0][0].seq <= answered:
                queue.popleft()
                self._count -= 1
        self._mark()

    def forget(self, answers: Iterable[Answer]) -> None:
        """Drops messages that had no effect; they are the oldest of their streams."""
        reached: dict[str, int] = {}
        for answer in answers:
            reached[answer.stream] = answer.seq
        self.drop(lambda stream: reached.get(stream, 0))

    def batch(self, limit: int = MAX_BATCH, limit_bytes: int = MAX_BATCH_BYTES) -> tuple[Answer, ...]:
        """The next messages to decide on, at least one when any waits.

        1. By the bus's time, then stream, then sequence, so that replicas decide alike;
        2. but of each stream a prefix, also when the bus's clock stepped back;
        3. at most `limit` messages and `limit_bytes` of canonical text, which one message may exceed.
        """
        heads = [(queue[0][0].time_ms, stream, 0) for stream, queue in self._queues.items() if queue]
        heapify(heads)
        chosen: list[Answer] = []
        size = 0
        while heads and len(chosen) < limit:
            _, stream, index = heappop(heads)
            queue = self._queues[stream]
            answer, answer_size = queue[index]
            if chosen and size + answer_size > limit_bytes:
                break
            chosen.append(answer)
            size += answer_size
            if index + 1 < min(len(queue), limit):
                heappush(heads, (queue[index + 1][0].time_ms, stream, index + 1))
        return tuple(chosen)

    def has_from(self, stream: str) -> int:
        """The sequence of the newest message of the stream that waits; 0 when none does."""
        queue = self._queues.get(stream)
        return queue[-1][0].seq if queue else 0

    def _mark(self) -> None:
        for event, holds in ((self.full, self._count >= self._batch_size), (self.room, self._count < MAX_WAITING)):
            if holds:
                event.set()
            else:
                event.clear()
