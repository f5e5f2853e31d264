"""Waiting for a job's end: the feed as it happens, and the job's own view as the truth.

The feed is a plain subscription and may lose a message while the bus restarts, so the job is also
asked about every two seconds, and only its view ends the wait. A cell that is away for a while is
waited for: the job goes on without us, and a pipeline should not fail because a service restarted.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.subscription import Subscription

from fairlease.cli.exits import AWAY, NOT_STARTED, TERMINAL, CommandError
from fairlease.cli.link import Answer, Link
from fairlease.runtime.tasks import heed_cancellation
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import AsOf, FeedEvent, JobView

POLL_S: Final = 2.0
OUTAGE_S: Final = 600.0
"""How long a cell that does not answer is waited for."""
_LAGGING_S: Final = 0.05
_STARTED: Final = frozenset(("running", "stopping", *TERMINAL))


class Step(NamedTuple):
    """Something to tell: a new state, or (with an empty state) that the cell is away."""

    job: str
    state: str
    attempt: str = ""
    hosts: tuple[str, ...] = ()

    def sentence(self) -> str:
        if not self.state:
            return f"{self.job}: the cell does not answer, still waiting"
        where = f" on {', '.join(self.hosts)}" if self.hosts and self.state in ("granted", "running") else ""
        return f"{self.job} {self.state}{where}"

    def facts(self) -> dict[str, Any]:
        """The step as a JSON line."""
        return {"kind": "Progress", **self._asdict()}


class Watch:
    """The wait for one job; `tell` hears each change of its state once."""

    def __init__(self, link: Link, job: str, feed: Subscription, tell: Callable[[Step], None]) -> None:
        self._link = link
        self._job = job
        self._feed = feed
        self._tell = tell
        self._told = Step(job, "")
        self._reached = (0, 0)
        self._is_away = False
        self._has_started = False
        self._now = asyncio.get_running_loop().time

    async def end(self, start_timeout_ms: int | None = None) -> Answer:
        """The job's view once its state is terminal.

        Raises CommandError: 207 when it has not started in time (counted from now), 69 when the cell
        did not answer for ten minutes.
        """
        heard_at = poll_at = self._now()
        start_by = heard_at + start_timeout_ms / 1000 if start_timeout_ms is not None else float("inf")
        is_over = False
        while True:
            heed_cancellation()
            if self._now() >= poll_at:
                answer = await self._view()
                if answer is not None and answer.view.state in TERMINAL:  # type: ignore[union-attr]  # _view checked it
                    return answer
                heard_at = self._heard(heard_at, is_answer=answer is not None)
                poll_at = self._now() + (_LAGGING_S if is_over else POLL_S)
            if not self._has_started and self._now() >= start_by:
                raise self._not_started(start_timeout_ms or 0)
            bell = poll_at if self._has_started else min(poll_at, start_by)
            event = await self._next(max(bell - self._now(), 0.001))
            if event is not None:
                heard_at = self._heard(heard_at, is_answer=True)
                self._step(Step(self._job, event.state, event.attempt, event.hosts), event.as_of)
                if event.state in TERMINAL:
                    is_over, poll_at = True, self._now()

    async def _view(self) -> Answer | None:
        """The job as the explainer has it; None while it does not answer or does not know the job yet."""
        try:
            answer = await self._link.ask("job", {"job": self._job})
        except CommandError:
            return None
        if not isinstance(answer.view, JobView):
            return None
        last = answer.view.attempts[-1] if answer.view.attempts else None
        started_before = any(attempt.started_ms is not None for attempt in answer.view.attempts)
        self._has_started = self._has_started or started_before
        step = Step(self._job, answer.view.state, last.attempt if last else "", last.hosts if last else ())
        self._step(step, answer.view.as_of)
        return answer

    async def _next(self, timeout_s: float) -> FeedEvent | None:
        try:
            message = await self._feed.next_msg(timeout=timeout_s)
            return understood(message.data, FeedEvent)
        except (nats.errors.TimeoutError, Unreadable):
            return None
        except nats.errors.Error:
            await asyncio.sleep(timeout_s)
            return None

    def _step(self, step: Step, as_of: AsOf) -> None:
        """Tell a step that is news; the feed may bring one that the job's view was already beyond."""
        place = (as_of.epoch, as_of.position)
        if place < self._reached:
            return
        self._reached = place
        self._has_started = self._has_started or step.state in _STARTED
        if (step.state, step.attempt) != (self._told.state, self._told.attempt) and step.state not in TERMINAL:
            self._told = step
            self._tell(step)

    def _heard(self, heard_at: float, *, is_answer: bool) -> float:
        """The time of the last sign of life; tells once that the cell is away, and gives up after `OUTAGE_S`."""
        if is_answer:
            self._is_away = False
            return self._now()
        if self._now() - heard_at > OUTAGE_S:
            raise CommandError(
                AWAY,
                f"the cell has not answered for {OUTAGE_S:.0f} s; {self._job} goes on without this command",
                way_out="submit again with the same request id to wait on, or see `fairlease doctor`",
                facts={"job": self._job},
            )
        if not self._is_away and self._now() - heard_at > POLL_S:
            self._is_away = True
            self._tell(Step(self._job, ""))
        return heard_at

    def _not_started(self, limit_ms: int) -> CommandError:
        return CommandError(
            NOT_STARTED,
            f"{self._job} has not started within {limit_ms / 1000:g} s; it goes on waiting",
            way_out=f"see `fairlease why {self._job}`, or end it with `fairlease job cancel {self._job}`",
            facts={"job": self._job, "state": self._told.state},
        )
