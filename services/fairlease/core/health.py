"""Health: which hosts there are and what keeps them from new work (scope `alloc`)."""

from collections.abc import Iterator
from typing import assert_never

from fairlease.core import drain, lease
from fairlease.core import host as hosts
from fairlease.core.budget import refuse_unreadable
from fairlease.core.check import return_problems
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.flood import gathered
from fairlease.core.host import MAX_POOLS, Host
from fairlease.core.world import World
from fairlease_schemas import commands, reports
from fairlease_schemas.envelope import Answer, Event, LeasesRead, Misshapen, Submitted, TimerFired, Unreadable
from fairlease_schemas.host import (
    DrainCancelled,
    DrainCompleted,
    DrainPlanned,
    HostHeld,
    HostHoldCleared,
    HostRegistered,
)
from fairlease_schemas.ids import HostId, PoolId
from fairlease_schemas.job import CommandRefused
from fairlease_schemas.policy import Policy

_CHANGES = HostRegistered | HostHeld | HostHoldCleared | DrainPlanned | DrainCompleted | DrainCancelled


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """One record for these messages, decided one after another on the hosts as they stand by then."""
    if world.policy is None:
        return None
    now_ms = decision_ms(world, answers)
    staged: dict[HostId, Host] = {}
    events: list[Event] = []
    for answer in answers:
        for event in _answer(world, staged, answer, now_ms):
            events.append(event)
            if isinstance(event, _CHANGES):
                changed = hosts.evolve(_host(world, staged, event.host), event, now_ms)
                if changed is not None:
                    staged[event.host] = changed
    if not events:  # what follows by itself is decided on the fold, beside no message that changed a host
        events.extend(_duties(world, world.policy, now_ms))
    if not events and not any(map(is_owed, answers)):
        return None
    return Decision(kind="hosts", at_ms=now_ms, events=gathered(answers, events), answers=answers)


def _duties(world: World, policy: Policy, now_ms: int) -> Iterator[Event]:
    """Hosts whose work of before is gone become what they said that they are (7.1); else drains go on."""
    settled: list[Event] = []
    for host in world.fleet.changed():
        hold = host.changed
        pools = set() if hold is None or hold.inventory is None else _pools_beside(world, {}, hold.inventory.pool)
        settled.extend(hosts.settle(host, pools))
    # A drain is planned on the host as it is by then.
    yield from settled or drain.duties(world, policy, now_ms)


def _host(world: World, staged: dict[HostId, Host], name: HostId) -> Host | None:
    return staged.get(name) or world.fleet.hosts.get(name)


def _pools_beside(world: World, staged: dict[HostId, Host], pool: PoolId) -> set[PoolId]:
    """The pools that have a host; none while there are few, or `pool` is one of them: then nothing is in its way."""
    here = {host.inventory.pool for host in staged.values()}
    if len(here) + len(world.fleet.schedulable) < MAX_POOLS or next(world.fleet.in_pool(pool), None) is not None:
        return set()
    return here.union(world.fleet.pools())


def _commanded(
    world: World, host: Host | None, answer: Answer, said: commands.CordonHost | commands.ReturnHost, now_ms: int
) -> list[Event]:
    """A cordon, or its end; a host is given back only with the checks that the policy names (7.4)."""
    event = hosts.command(host, answer, said)
    if host is not None and isinstance(event, HostHoldCleared):
        assert world.policy is not None, "nothing is decided before the first policy"
        problems = return_problems(world.policy, host, event.checks, now_ms)
        if problems:
            return [CommandRefused(account=answer.who, verb="return-host", seq=answer.seq, problems=problems)]
    return [] if event is None else [event]


def _answer(world: World, staged: dict[HostId, Host], answer: Answer, now_ms: int) -> list[Event]:
    match answer.said:
        case reports.HostUp():
            host = _host(world, staged, answer.who)
            is_busy = host is not None and host.id in world.fleet.hosts and bool(world.fleet.attempts_on(host.id))
            pools = _pools_beside(world, staged, answer.said.inventory.pool)
            return list(hosts.register(host, answer, answer.said, pools=pools, is_busy=is_busy))
        case commands.RequestDrain():
            assert world.policy is not None, "nothing is decided before the first policy"
            return drain.request(world, world.policy, staged, answer, answer.said, now_ms)
        case commands.UndrainHost():
            return drain.undrain(_host(world, staged, answer.said.host), answer, answer.said)
        case commands.CordonHost() | commands.ReturnHost():
            return _commanded(world, _host(world, staged, answer.said.host), answer, answer.said, now_ms)
        case Unreadable():
            return [refuse_unreadable(answer, answer.said)]
        case TimerFired():
            return []
        case LeasesRead():
            assert world.policy is not None, "nothing is decided before the first policy"
            return lease.judge(world, world.policy, answer.said, now_ms)
        case (
            Submitted()
            | Misshapen()
            | commands.CancelJob()
            | commands.HoldJob()
            | commands.ReleaseJob()
            | commands.RecordEvaluation()
            | commands.ChangeBudget()
            | commands.ChangeMember()
            | commands.ChangePolicy()
            | commands.ProposeChange()
            | commands.ReportChange()
            | commands.AcceptChange()
            | reports.RunReady()
            | reports.RunStarted()
            | reports.RunGone()
            | reports.CheckpointDone()
        ):
            return []  # for another service
        case _:
            assert_never(answer.said)
