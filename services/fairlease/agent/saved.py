"""Checkpoints of a host's runs: seen in their directories, reported once each.

A job says what it saved by one small file (fairlease_sdk writes it), so that it needs no bus and no
open socket; the agent looks at it once a second, which is one `stat` per run, and once more before it
says that the run is gone. What a job writes is not believed further than it must be: the file is
bounded, opened without following links, and only step, digest and whether it can be read elsewhere go
on. Of a run at most one report waits for the bus; when it is through, the newest file is looked at again.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from fairlease.agent import layout
from fairlease.agent.outbox import Outbox
from fairlease.agent.runs import Run
from fairlease_schemas.codec import Unreadable, canonical, understood
from fairlease_schemas.ids import AttemptId
from fairlease_schemas.reports import CheckpointDone

log = logging.getLogger("fairlease.agent")

EVERY_S: Final = 1.0
_MOST_STEP: Final = (1 << 53) - 1


RESHARDING: Final = ("dcp",)
"""Formats that can be read at another size, and so at another place."""


class Elsewhere(msgspec.Struct, frozen=True):
    """Where else than at its own size and model a checkpoint can go on."""

    gpu_types: tuple[str, ...] = ()
    elastic: bool = False


class _Manifest(msgspec.Struct, frozen=True):
    """All that the agent reads of a manifest."""

    step: int
    complete: bool = False


class _Readable(msgspec.Struct, frozen=True):
    """Where a manifest says that its checkpoint can be read."""

    format: str = ""
    resumable_on: Elsewhere = Elsewhere()


class Checkpoints:
    """Looks at the living runs and reports what they saved. `open` in the loop, `close` at the end."""

    def __init__(self, outbox: Outbox, living: Callable[[], Iterable[Run]]) -> None:
        self._outbox = outbox
        self._living = living
        self._read: dict[AttemptId, tuple[int, int, int]] = {}
        self._on_the_way: set[AttemptId] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self.open)
        for run in self._living():
            self.look(run)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def look(self, run: Run, *, is_last: bool = False) -> None:
        """Reports the run's newest checkpoint if it is new; the last look does not wait for an earlier report."""
        if run.attempt in self._on_the_way and not is_last:
            return
        path = run.directory.path / layout.SAID / layout.CHECKPOINT
        try:
            found = path.lstat()
        except OSError:
            return
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._read.get(run.attempt) == mark:
            return
        self._read[run.attempt] = mark
        try:
            data = layout.content(str(path))
            manifest = understood(data, _Manifest)
        except (FileNotFoundError, layout.Spoiled, Unreadable) as error:
            log.warning("%s: its manifest cannot be read and is not reported: %s", run.attempt, error)
            return
        digest = hashlib.sha256(data).hexdigest()
        if not manifest.complete or not 0 <= manifest.step <= _MOST_STEP or digest == run.directory.acked_checkpoint():
            return
        self._on_the_way.add(run.attempt)
        body = CheckpointDone(
            attempt=run.attempt,
            token=run.facts.token,
            step=manifest.step,
            digest=digest,
            is_bound=is_bound(data),
        )
        self._outbox.put("checkpoint-done", canonical(body), lambda: self._heard(run, digest))

    def forget(self, attempt: AttemptId) -> None:
        self._read.pop(attempt, None)

    def _heard(self, run: Run, digest: str) -> None:
        self._on_the_way.discard(run.attempt)
        try:
            run.directory.ack_checkpoint(digest)
        except OSError as error:
            log.warning("%s: its checkpoint will be reported again: %s", run.attempt, error)
        if run.gone is None:
            self.look(run)


def is_bound(manifest: bytes) -> bool:
    """Whether the checkpoint can be read at no other place than one of its kind (8.3).

    True unless its manifest says otherwise: by a format that reshards, or by where else it can go on.
    """
    try:
        found = understood(manifest, _Readable)
    except Unreadable:
        return True
    return found.format not in RESHARDING and not found.resumable_on.elastic and not found.resumable_on.gpu_types
