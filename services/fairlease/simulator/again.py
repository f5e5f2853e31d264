"""A cell's past, played again: as it was, or with another policy, other numbers of it, or another tree of budgets.

Whether somebody may do what he did is not asked again: the log holds what was taken, and one account says all of that
which takes a right. So a budget that is moved takes its jobs with it, also those of people who had no role there.
"""

import functools
from typing import Any, Final

import msgspec

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.waiting import life
from fairlease.simulator.crew import Tell, Wrong
from fairlease.simulator.engine import T0
from fairlease.simulator.past import BREAKS, RETURNS, STRIKES, Befell, Heard, Past
from fairlease.simulator.regrown import Regrown
from fairlease.simulator.runs import FOUNDER, Simulation
from fairlease_schemas.commands import (
    CancelJob,
    ChangeBudget,
    ChangePolicy,
    HoldJob,
    ReleaseJob,
    RequestDrain,
)
from fairlease_schemas.envelope import Said, Submitted
from fairlease_schemas.job import JobRefused
from fairlease_schemas.policy import Policy

Data = dict[str, Any]
SEED: Final = 1
_OF_JOBS: Final = (CancelJob, HoldJob, ReleaseJob)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is otherwise. `numbers` are fields of every policy in the log, `policy` takes the place of all of them.

    `budgets` are made, moved, weighed and capped so from the beginning, or as soon as the log has what they need.
    """

    ruler: str = "budget-window"
    policy: Policy | None = None
    numbers: dict[str, Any] = {}
    budgets: tuple[ChangeBudget, ...] = ()

    def of(self, policy: Policy) -> Policy:
        """The policy that stands in the place of this one."""
        return msgspec.structs.replace(self.policy or policy, **self.numbers)


class _Again:
    """The past, said once more to an engine."""

    def __init__(self, past: Past, change: Change) -> None:
        self._past = past
        self._change = change
        self.run = Simulation(change.ruler, SEED, past.stopping, Period(T0 - 1, T0 + past.length_ms), None)
        self.refused = 0
        self.tree = Regrown(self.run, past, change.budgets)
        self._in_force = Policy()
        self.run.machines.on_refused = self._refuse
        for job, work in past.work.items():
            self.run.machines.expect(job, msgspec.structs.replace(work))
        for number, one in enumerate(past.policies):
            self.run.engine.at(T0 + one.after_ms, functools.partial(self._rule, f"again-{number}", one.policy))
        self.run.engine.at(T0, self.tree.reach)
        for heard in past.heard:
            self.run.engine.at(T0 + heard.after_ms, functools.partial(self._say, heard))
        for befell in past.befell:
            self.run.engine.at(T0 + befell.after_ms, functools.partial(self._befall, befell))

    def _rule(self, name: str, told: Policy) -> None:
        # What was changed is changed again, whatever it had to go through then.
        policy = msgspec.structs.replace(self._change.of(told), change_gate="")
        if policy != self._in_force:
            self._in_force = policy
            self.run.engine.say(ChangePolicy(name=name, policy=policy), FOUNDER)
            self.run.engine.deliver()

    def _say(self, heard: Heard) -> None:
        said: Said = heard.said
        match said:
            case RequestDrain():
                moved = {
                    name: value and max(T0, T0 + value - self._past.began_ms)
                    for name, value in (("not_before_ms", said.not_before_ms), ("deadline_ms", said.deadline_ms))
                }
                said = msgspec.structs.replace(said, **moved)
            case ChangeBudget():
                self.tree.say(said)
                return
            case _:
                pass
        self.run.engine.say(said, FOUNDER if isinstance(said, _OF_JOBS) else heard.who)
        if not isinstance(said, (Submitted, *_OF_JOBS)):
            self.run.engine.deliver()  # hosts and budgets that came at one instant with a job were there before it

    def _befall(self, befell: Befell) -> None:
        machines = self.run.machines
        {BREAKS: machines.breaks, RETURNS: machines.repaired, STRIKES: machines.strikes}[befell.what](befell.host)

    def _refuse(self, _event: JobRefused) -> None:
        self.refused += 1


def play_again(tell: Tell, *, past: Past, change: Change) -> Data:
    """The SimulationReport of the past with this change, and `waits` by job in ms.

    Wrong where a change of a budget did not hold by the end: its figures would be of something else.
    """
    again = _Again(past, change)
    run = again.run
    until_ms = run.period.until_ms
    run.followers.append(lambda world, _record: tell((world.log_time_ms - T0) * 1000 // max(1, past.length_ms)))
    run.engine.run(until_ms)
    world = run.engine.world
    if missed := again.tree.missed():
        raise Wrong(
            f"what is said of budget {missed[0]} can hold at no time of this log: leave it out of what is tried"
        )
    met = (
        ("jobs that the changed policy or tree refuses", again.refused),
        ("changes of budgets that had no room when they were made", again.tree.refused),
    )
    rules = [{"rule": rule, "count": count} for rule, count in met if count]
    report = run.report(past.report["digest"], rules)
    waits = {name: life(world.jobs[name], until_ms).wait_ms for name in past.work if name in world.jobs}
    return {**report, "waits": waits}
