"""What the people of a recorded workload do about a job that faults brought to a hold: after a while they release it.

A trace says nothing of them, and a job that nobody releases never ends; a live cell would wait for them as well.
"""

from typing import Final

from fairlease.core.hold import NOBODY
from fairlease.core.world import World
from fairlease.simulator.engine import Engine
from fairlease_schemas.commands import ReleaseJob
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import AccountId, JobId
from fairlease_schemas.job import JobHeld
from fairlease_schemas.units import HOUR_MS

THINKS_MS: Final = HOUR_MS


class Owners:
    """Everybody who submitted anything. `released` counts what they did."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.released = 0

    def follow(self, world: World, record: Record) -> None:
        """A hold that nobody asked for is cleared by the job's owner an hour later."""
        for event in record.events:
            if isinstance(event, JobHeld) and event.account == NOBODY:
                owner = world.jobs[event.job].account
                self._engine.at(
                    self._engine.now_ms + THINKS_MS,
                    lambda job=event.job, owner=owner: self._release(job, owner),  # type: ignore[misc]  # bound now
                )

    def _release(self, job: JobId, owner: AccountId) -> None:
        self.released += 1
        self._engine.say(ReleaseJob(job=job), owner)
