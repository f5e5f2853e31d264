"""Messages that were read and not yet answered by a record (log.md L3, Inboxes).

There are no acknowledgements: the record that answers a message moves the cursor in the fold, and
what lies at or below the cursor is dropped here. Of timers only the newest is kept: it says that all
instants before it have passed, and its answer moves the cursor over the older ones.

Streams take turns: an account that sends a thousand commands a second fills its own queue and its own part of a
record, and nobody else's. Who sent first would else wait behind all that the other has sent before.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from fairlease_schemas.envelope import Answer

MAX_BATCH: Final = 64
MAX_BATCH_BYTES: Final = 96 * 1024
"""What the answers of one record may take; its events repeat much of it, and a record fits 256 KiB."""

MAX_FLOOD_BATCH: Final = 128
"""The same while refusals of an inbox are told together: a thousand messages a second fit ten records."""

MAX_WAITING: Final = 1_024
"""How many of a stream may wait before reading it pauses: the rest keeps in the bus."""

_ENCODER: Final = msgspec.json.Encoder()


class Pending:
    """Per stream a queue in the order of the stream; `full` is set while a whole batch waits.

    Of streams that begin with `timers_prefix` the last message alone counts.
    """

    def __init__(self, timers_prefix: str = "", batch_size: int = MAX_BATCH) -> None:
        self._timers_prefix = timers_prefix
        self._batch_size = batch_size
        self._queues: dict[str, deque[tuple[Answer, int]]] = {}
        self._count = 0
        self._rooms: dict[str, asyncio.Event] = {}
        self.full = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def add(self, answer: Answer) -> None:
        """Appends one message; sequences of a stream come in ascending order, repeats are dropped."""
        queue = self._queues.setdefault(answer.stream, deque())
        if queue and queue[-1][0].seq >= answer.seq:
            return
        if self._timers_prefix and answer.stream.startswith(self._timers_prefix):
            self._count -= len(queue)
            queue.clear()
        queue.append((answer, len(_ENCODER.encode(answer))))
        self._count += 1
        self._mark(answer.stream)

    def drop(self, cursor: Callable[[str], int]) -> None:
        """Drops, per stream, what is at or below its cursor: it was answered, by whichever replica."""
        for stream, queue in self._queues.items():
            answered = cursor(stream) if queue else 0
            while queue and queue[0][0].seq <= answered:
                queue.popleft()
                self._count -= 1
        self._mark(*self._rooms)

    def forget(self, answers: Iterable[Answer]) -> None:
        """Drops messages that had no effect; they are the oldest of their streams."""
        reached: dict[str, int] = {}
        for answer in answers:
            reached[answer.stream] = answer.seq
        self.drop(lambda stream: reached.get(stream, 0))

    def batch(
        self, limit: int = MAX_BATCH, limit_bytes: int = MAX_BATCH_BYTES, leave_out: Collection[str] = ()
    ) -> tuple[Answer, ...]:
        """The next messages to decide on, at least one when any waits in a stream that is not left out.

        1. At most `limit` messages and `limit_bytes` of canonical text, which one message may exceed: the first of
           every stream, then the second of each, and so on;
        2. of each stream a prefix, also when the bus's clock stepped back;
        3. by the bus's time, then stream, then sequence, so that replicas decide alike.
        """
        heads = [(0, queue[0][0].time_ms, stream) for stream, queue in self._queues.items() if queue]
        heads = [head for head in heads if head[2] not in leave_out]
        heapify(heads)
        taken: dict[str, int] = {}
        count = size = 0
        while heads and count < limit:
            index, _, stream = heappop(heads)
            queue = self._queues[stream]
            answer_size = queue[index][1]
            if count and size + answer_size > limit_bytes:
                break
            taken[stream] = index + 1
            count, size = count + 1, size + answer_size
            if index + 1 < min(len(queue), limit):
                heappush(heads, (index + 1, queue[index + 1][0].time_ms, stream))
        return self._in_order(taken)

    def _in_order(self, taken: dict[str, int]) -> tuple[Answer, ...]:
        """So many of each stream, merged by time."""
        heads = [(self._queues[stream][0][0].time_ms, stream, 0) for stream in taken]
        heapify(heads)
        chosen: list[Answer] = []
        while heads:
            _, stream, index = heappop(heads)
            chosen.append(self._queues[stream][index][0])
            if index + 1 < taken[stream]:
                heappush(heads, (self._queues[stream][index + 1][0].time_ms, stream, index + 1))
        return tuple(chosen)

    def room(self, stream: str) -> asyncio.Event:
        """Set while reading the stream may go on."""
        room = self._rooms.get(stream)
        if room is None:
            room = self._rooms[stream] = asyncio.Event()
            self._mark(stream)
        return room

    def has_from(self, stream: str) -> int:
        """The sequence of the newest message of the stream that waits; 0 when none does."""
        queue = self._queues.get(stream)
        return queue[-1][0].seq if queue else 0

    def _mark(self, *streams: str) -> None:
        """Set or clear what tells of the whole, and of these streams' rooms."""
        marks = [(self.full, self._count >= self._batch_size)]
        known = (stream for stream in streams if stream in self._rooms)
        marks += [(self._rooms[stream], len(self._queues.get(stream, ())) < MAX_WAITING) for stream in known]
        for event, holds in marks:
            if holds:
                event.set()
            else:
                event.clear()
