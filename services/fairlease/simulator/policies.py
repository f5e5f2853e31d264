"""The policies that a simulation may run, by name: a set of rules for the services each.

A policy of another kind puts its own rule in the place of the ranker's, or of any other service; what the log
then says is decided by it alone. The services' own rules are `budget-window`. What another policy reads and no
contract says (how long a job will run, what priority its owner names) it asks of the machines, who know.
"""

from collections.abc import Callable, Mapping
from typing import Final

from fairlease.core.deciders import RULES, Rule
from fairlease.core.job import Job
from fairlease.simulator import freely, shared
from fairlease.simulator.machines import Machines
from fairlease.simulator.rankers import plain
from fairlease.simulator.walk import Open, Walk, offer_all, rules, waiting
from fairlease_schemas.envelope import Address

BUDGET_WINDOW: Final = "budget-window"

Policy = Callable[[Machines], Mapping[str, Rule]]
Key = Callable[[plain.Waiting], tuple[int, ...]]


def _plain(key: Key, *, is_strict: bool) -> Policy:
    """The order of one key over everybody; strict where nobody passes one who finds no room."""

    def policy(machines: Machines) -> Mapping[str, Rule]:
        def walk(here: Open) -> None:
            def place(job: Job) -> tuple[tuple[int, ...], Address]:
                return key(seen(machines, job)), job.admitted

            offer_all(here, sorted(waiting(here.world), key=place), is_strict=is_strict)

        return rules(walk)

    return policy


def _first_come(_machines: Machines) -> Mapping[str, Rule]:
    """Strict first come, first served: the heads of the classes are enough to know who is next."""

    def walk(here: Open) -> None:
        lines = [list(reversed(of.members)) for of in here.world.line.classes.values()]
        while lines:
            line = min(lines, key=lambda line: line[-1])
            _, name = line.pop()
            if not here.offer(here.world.jobs[name]):
                return
            lines = [line for line in lines if line]

    return rules(walk)


def seen(machines: Machines, job: Job) -> plain.Waiting:
    """The job as an order reads it. Jobs of one instant go by their place in the log, which is that of the trace."""
    work = machines.work(job.id)
    return plain.Waiting(
        number=0,
        submit_ms=job.submitted_ms,
        duration_ms=work.whole_ms,
        left_ms=machines.left_ms(job.id),
        gpus=job.gpus,
        priority=work.priority,
    )


def _walking(walk: Walk) -> Policy:
    return lambda _machines: rules(walk)


def _freely(key: Key) -> Policy:
    def policy(machines: Machines) -> Mapping[str, Rule]:
        return freely.rules(lambda job: (key(seen(machines, job)), job.admitted))

    return policy


POLICIES: Final[Mapping[str, Policy]] = {
    BUDGET_WINDOW: lambda _machines: RULES,
    "fifo": _first_come,
    "sjf": _plain(plain.sjf, is_strict=True),
    "srtf": _freely(plain.srtf),
    "srsf": _freely(plain.srsf),
    "static-priority": _plain(plain.static_priority, is_strict=False),
    "fair-tree": _walking(shared.by_turns(shared.by_fair_tree)),
    "hadoop-fair": _walking(shared.by_turns(shared.by_hadoop)),
    "usage-decay": _walking(shared.by_turns(shared.by_usage_decay)),
    "kai-time": _walking(shared.by_turns(shared.by_kai)),
}
