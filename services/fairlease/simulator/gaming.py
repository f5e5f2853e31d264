"""What the people of a project do to get more than they are due, and nobody else does.

Each strategy is taken at its best for who plays it: what he saves before he cancels his own work is never lost, and
what he does takes him no time. What it gains is told by robustness.py, against the same seed without it. `delays` is
the control: everything is handed in five minutes later, which helps nobody, so what it "gains" is chance.

| strategy | what they do |
|---|---|
| `delays` | hand in everything five minutes later |
| `splits` | hand in a gang of several hosts as as many jobs of one host, each as long as the gang |
| `resubmits` | cancel what has waited for half an hour, and what has run for its whole window, and hand it in again |
| `long-windows`, `short-windows` | ask for the longest, the shortest window that a gang of that size may have |
| `debug-lane` | hand in what fits the debug lane there, an hour at a time, until it is done |
| `squats` | keep the GPUs when the work is done, until somebody tells them to leave, and go on with other work beside |
"""

from collections.abc import Callable
from typing import Final

import msgspec

from fairlease.core.job import Phase
from fairlease.core.policy_rules import window_bound
from fairlease.core.world import World
from fairlease.simulator.engine import Engine
from fairlease.simulator.machines import Machines, Work
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import AttemptId, JobId
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import MINUTE_MS

DELAYS, SPLITS, RESUBMITS, SQUATS = "delays", "splits", "resubmits", "squats"
LONG_WINDOWS, SHORT_WINDOWS, DEBUG_LANE = "long-windows", "short-windows", "debug-lane"
LATE_MS: Final = 5 * MINUTE_MS
"""By how much `delays` is later."""
LOSES_PATIENCE_MS: Final = 30 * MINUTE_MS
"""After how long a waiting job is cancelled by `resubmits`."""
_LANE: Final = "debug"

Asked = tuple[Request, Work]
_replace = msgspec.structs.replace


def handed_in(strategy: str, policy: Policy, request: Request, work: Work) -> list[Asked]:
    """What is handed in instead of this job, in order; the job itself where the strategy leaves it as it is.

    Idle work, and what is honestly of the debug lane, cannot be lied about; all strategies leave it as it is.
    """
    if not request.min_runtime_ms or request.lane:
        return [(request, work)]
    if strategy == SPLITS:
        longest_ms = window_bound(policy, request.gpus_per_host).longest_ms
        part = _replace(request, hosts=1, min_runtime_ms=min(request.min_runtime_ms, longest_ms))
        return [(part, _replace(work)) for _ in range(request.hosts)] if request.hosts > 1 else [(request, work)]
    if strategy == SQUATS:
        return [(request, _replace(work, is_squatting=True))]
    return [(_lied(strategy, policy, request) if request.is_resumable else request, work)]


def _lied(strategy: str, policy: Policy, request: Request) -> Request:
    """The same work under another window or lane. What cannot be resumed has its timeout for a window anyhow."""
    gpus = request.hosts * request.gpus_per_host
    bound = window_bound(policy, gpus)
    if strategy == LONG_WINDOWS:
        return _replace(request, min_runtime_ms=min(bound.longest_ms, request.timeout_ms))
    if strategy == SHORT_WINDOWS:
        return _replace(request, min_runtime_ms=min(bound.shortest_ms, request.timeout_ms))
    if strategy == DEBUG_LANE and gpus <= policy.debug_max_gpus:
        window_ms, timeout_ms = policy.debug_max_window_ms, policy.debug_max_timeout_ms
        return _replace(request, lane=_LANE, min_runtime_ms=window_ms, timeout_ms=timeout_ms, on_timeout="requeue")
    return request


class Resubmitter:
    """Cancels jobs of those who play `resubmits`; `again` is told of each before it is, and hands it in once more."""

    def __init__(self, engine: Engine, machines: Machines, again: Callable[[JobId], None]) -> None:
        self._engine = engine
        self._machines = machines
        self._again = again
        self._mine: set[JobId] = set()

    def handed_in(self, job: JobId) -> None:
        """The job is on its way to the cell."""
        self._mine.add(job)
        self._engine.at(self._engine.now_ms + LOSES_PATIENCE_MS, lambda: self._waited(job))

    def follow(self, _world: World, record: Record) -> None:
        """Look again at the end of the window of what is granted."""
        for event in record.events:
            if isinstance(event, GangGranted) and event.job in self._mine:
                name, job = event.attempt, event.job
                due_ms = self._engine.now_ms + event.window_ms
                self._engine.at(due_ms, lambda name=name, job=job: self._ran(job, name))  # type: ignore[misc]  # bound now

    def _waited(self, job: JobId) -> None:
        known = self._engine.world.jobs.get(job)
        if known is not None and known.phase is Phase.WAITING and not known.attempts:
            self._cancel(job)

    def _ran(self, job: JobId, name: AttemptId) -> None:
        known = self._engine.world.jobs[job]
        live = known.live
        if live is not None and live.id == name and live.ending is None and self._machines.left_ms(job) > 0:
            self._machines.saves_now(job)
            self._cancel(job)

    def _cancel(self, job: JobId) -> None:
        self._mine.discard(job)
        self._again(job)
        self._engine.say(CancelJob(job=job), self._engine.world.jobs[job].account)
