"""Read models of the world: jobs, queue, shares, hosts, policy, as the explainer answers them.

Pure functions of a fold. Nothing here decides; what a rank would say now is computed by the same
functions that decide it.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from fairlease.core.budget import Node
from fairlease.core.change import is_stale
from fairlease.core.fairshare.next_pick import Pick, Picker
from fairlease.core.fairshare.order import members_by_submission, members_in_order
from fairlease.core.fairshare.rank import rank
from fairlease.core.fairshare.standing import permille, standings
from fairlease.core.host import DRAIN, Host
from fairlease.core.job import Attempt, Job, Phase, told_of
from fairlease.core.line import class_key
from fairlease.core.membership import LEAD, MEMBER, is_everybodys
from fairlease.core.outlook import Outlooks
from fairlease.core.world import World
from fairlease_schemas.commands import Change, ChangePolicy
from fairlease_schemas.cycle import Licence, PoolRank
from fairlease_schemas.explain import (
    AsOf,
    AttemptView,
    BudgetNode,
    DrainView,
    HostRow,
    HostsView,
    JobView,
    NumberChange,
    PolicyView,
    ProposalRow,
    ProposalsView,
    QueueRow,
    QueueView,
    RankRow,
    RankView,
    ReportRow,
    ShareRow,
    SharesView,
)
from fairlease_schemas.ids import BudgetId, HostId, JobId
from fairlease_schemas.policy import Policy

MAX_EVIDENCE = 8
"""Parts of an attempt whose evidence is named: one of two thousand hosts stays one message."""
MAX_ACCOUNTS = 50
"""Accounts of one role that a node lists: the view of a large tree stays one message."""

MAX_BEFORE = 8
"""Hosts that a queued drain is said to wait for."""

PARKED = frozenset((Phase.BACKOFF, Phase.HELD, Phase.DEPENDENT))


def as_of(world: World) -> AsOf:
    """The place in the log that a view was read at."""
    return AsOf(epoch=world.epoch, position=world.position, log_time_ms=world.log_time_ms)


def order_of_waiting(world: World) -> Iterator[JobId]:
    """Waiting jobs in the order in which they would be tried if every one before were granted.

    Pools by id; a job that waits for several pools comes at its first place.
    """
    policy = world.policy
    if policy is None or not world.line.total:
        return
    whole = msgspec.structs.replace(policy, max_classes_per_pool=len(world.line.classes))
    seen: set[JobId] = set()
    for pool in rank(world, whole, world.log_time_ms, first=0).pools:
        picker = _picker(world, pool)
        while (pick := picker.next()) is not None:
            if pick.job in seen:
                picker.skip()
                continue
            seen.add(pick.job)
            yield pick.job
            picker.granted()


def rank_view(world: World, limit: int) -> RankView:
    """Who is next, with the numbers: as `order_of_waiting`, but every pool by itself."""
    policy = world.policy
    rows: list[RankRow] = []
    if policy is not None and world.line.total:
        whole = msgspec.structs.replace(policy, max_classes_per_pool=len(world.line.classes))
        for pool in rank(world, whole, world.log_time_ms, first=0).pools:
            picker = _picker(world, pool)
            while (pick := picker.next()) is not None and len(rows) < limit:
                rows.append(_rank_row(world, pool.pool, picker, pick, len(rows) + 1))
                picker.granted()
    return RankView(rows=tuple(rows), as_of=as_of(world))


def _picker(world: World, pool: PoolRank) -> Picker:
    return Picker(
        pool,
        lambda key: members_in_order(world, key, world.log_time_ms),
        lambda key: members_by_submission(world, key),
        due_first_permille=world.policy.due_first_permille if world.policy else 0,
    )


def _rank_row(world: World, pool: str, picker: Picker, pick: Pick, place: int) -> RankRow:
    of = pick.of
    partitions = {Licence.DEBUG: "debug-lane", Licence.IDLE: "idle"}
    return RankRow(
        rank=place,
        job=pick.job,
        budget=of.budget,
        pool=pool,
        partition=partitions.get(pick.licence, "budgeted"),
        licence=str(pick.licence),
        gpus=of.hosts * of.gpus_per_host,
        min_runtime_ms=of.min_runtime_ms,
        path=tuple((node.name, node.permille) for node in picker.scales.path(of.budget)),
        is_due_more=world.policy is not None and picker.scales.is_below(of.budget, world.policy.due_first_permille),
        reason=reason_code(world, world.jobs[pick.job]),
    )


def reason_code(world: World, job: Job) -> str:
    """The code of the reason that the job waits for; empty when none is on record."""
    found = world.reason("admission", job.id)
    if found is None and job.phase is Phase.WAITING:
        key = class_key(job)
        found = world.reason("preemption", key) or world.reason("placement", key)
    return str(found.code) if found is not None else ""


def queue(world: World, limit: int, account: str = "", budget: str = "", *, with_start: bool = False) -> QueueView:
    """Running jobs by grant, then waiting ones by rank, then those that do not compete; at most `limit` rows.

    Not competing are those in backoff, held for a person, or waiting on for other jobs.

    `with_start` adds when each waiting job will have started at the latest, as the calendar knows it;
    equal requests share one answer, which is the first one's.
    """

    def shown(job: Job) -> bool:
        return (not account or job.account == account) and (not budget or job.budget == budget)

    live = [job for name in world.live.values() if shown(job := world.jobs[name])]
    waiting = sum(1 for c in world.line.classes.values() for _, name in c.members if shown(world.jobs[name]))
    starts = _Starts(world) if with_start else None
    rows = [_row(world, job, None) for job in islice(live, limit)]
    for place, name in enumerate(order_of_waiting(world), 1):
        if len(rows) >= limit:
            break
        if shown(world.jobs[name]):
            rows.append(_row(world, world.jobs[name], place, starts))
    parked = [job for job in world.jobs.values() if job.phase in PARKED and shown(job)]
    rows.extend(_row(world, job, None) for job in parked[: max(0, limit - len(rows))])
    return QueueView(waiting=waiting, running=len(live), parked=len(parked), rows=tuple(rows), as_of=as_of(world))


def left_by_ms(world: World, job: Job) -> int | None:
    """When the last who was told to leave the hosts kept for the job is gone: its telling + grace + stop margin.

    None where nothing is kept for it, or nobody on its hosts is leaving.
    """
    kept = world.reservations.get(job.id)
    if kept is None or world.policy is None or job.phase is not Phase.WAITING:
        return None
    names = {name for host in kept.hosts for name in world.fleet.attempts_on(host)}
    leaving = [found[1] for name in sorted(names) if (found := world.attempt(name)) is not None]
    ends = [one.ending_ms + one.grace_ms for one in leaving if one.ending is not None]
    return max(ends) + world.policy.stop_margin_ms if ends else None


class _Starts:
    """When waiting jobs start at the latest, once for every class."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._outlooks = Outlooks(world, world.policy) if world.policy is not None else None
        self._known: dict[str, int | None] = {}

    def of(self, job: Job) -> int | None:
        left_ms = left_by_ms(self._world, job)
        if left_ms is not None:
            return left_ms
        key = class_key(job)
        if key not in self._known:
            outlook = self._outlooks.best(job) if self._outlooks is not None else None
            self._known[key] = outlook.start_by_ms if outlook is not None else None
        return self._known[key]


def _row(world: World, job: Job, place: int | None, starts: _Starts | None = None) -> QueueRow:
    attempt = job.live
    promise = world.promises.get(job.id)
    start_by_ms = promise.start_ms if promise is not None else starts.of(job) if starts is not None else None
    return QueueRow(
        job=job.id,
        account=job.account,
        budget=job.budget,
        state=str(job.phase),
        hosts=job.request.hosts,
        gpus=job.gpus,
        min_runtime_ms=job.request.min_runtime_ms,
        since_ms=attempt.granted_ms if attempt else job.waiting_since_ms,
        rank=place,
        reason=reason_code(world, job) if attempt is None else "",
        start_by_ms=start_by_ms if attempt is None else None,
        is_promised=promise is not None,
    )


def job_view(world: World, job: Job) -> JobView:
    """One job with all its attempts."""
    request = job.request
    return JobView(
        job=job.id,
        account=job.account,
        budget=job.budget,
        request_id=job.request_id,
        state=str(job.phase),
        end=str(job.end) if job.end else "",
        exit_code=job.exit_code,
        submitted_ms=job.submitted_ms,
        hosts=request.hosts,
        gpus_per_host=request.gpus_per_host,
        min_runtime_ms=request.min_runtime_ms,
        timeout_ms=request.timeout_ms,
        lane=request.lane,
        digest=job.digest,
        attempts=tuple(map(_attempt_view, job.attempts)),
        as_of=as_of(world),
        held_by=job.held_by,
        held_for=job.held_for,
        cancelled_for=job.cancelled_for,
        array_index=request.array.index if request.array is not None else None,
        array_count=request.array.count if request.array is not None else 0,
        bound_to=job.bound_to,
        is_clean=job.is_clean and not job.is_terminal,
        rest_ms=job.rest_ms if job.live is None and not job.is_terminal else None,
    )


def _attempt_view(attempt: Attempt) -> AttemptView:
    late = () if attempt.is_stillborn or attempt.is_over else attempt.not_ready
    return AttemptView(
        attempt=attempt.id,
        number=attempt.number,
        pool=attempt.pool,
        hosts=attempt.hosts,
        gpus=attempt.gpus,
        granted_ms=attempt.granted_ms,
        started_ms=attempt.started_ms,
        ended_ms=attempt.ended_ms if attempt.is_over else None,
        window_ms=attempt.window_ms,
        end=str(attempt.end) if attempt.end else "",
        exit_code=attempt.exit_code,
        token=str(attempt.token),
        detail=attempt.detail or next((part.detail for part in attempt.gone if part.detail), ""),
        stop_for=attempt.stop_for,
        drained_from=attempt.drained_from,
        is_moved=attempt.is_moved,
        not_ready=told_of(late)[0],
        rendezvous=str(attempt.rendezvous) if attempt.rendezvous is not None else "",
        evidence=dict([(part.host, part.evidence) for part in attempt.gone if part.evidence][:MAX_EVIDENCE]),
        late_hosts=len(late),
    )


def shares(world: World) -> SharesView:
    """The tree, depth first, one row per node and pool, as standings are at the fold's log time."""
    tree = world.tree
    held: dict[tuple[str, str], int] = {}
    for name in world.live.values():
        job = world.jobs[name]
        if job.live is not None and not job.is_idle_work:
            for node in tree.path(job.budget):
                key = (node, job.live.pool)
                held[key] = held.get(key, 0) + job.live.gpus
    waiting: dict[str, int] = {}
    for leaf, count in world.line.waiting.items():
        for node in tree.path(leaf):
            waiting[node] = waiting.get(node, 0) + count
    depths = dict(tree.walk())
    rows = [
        ShareRow(
            budget=node.budget,
            parent=node.parent,
            depth=depths[node.budget],
            weight=node.weight,
            pool=pool,
            entitled_gpu_ms=node.entitled_gpu_ms,
            used_gpu_ms=node.used_gpu_ms,
            promised_gpu_ms=node.promised_gpu_ms,
            standing_permille=permille(node.used_gpu_ms + node.promised_gpu_ms, node.entitled_gpu_ms),
            held_gpus=held.get((node.budget, pool), 0),
            waiting_jobs=waiting.get(node.budget, 0),
        )
        for pool in world.fleet.pools()
        for node in standings(world, pool, world.log_time_ms)
    ]
    nodes = tuple(_budget_node(world, name, tree.nodes[name]) for name in depths)
    return SharesView(rows=tuple(rows), as_of=as_of(world), nodes=nodes)


def _budget_node(world: World, name: BudgetId, node: Node) -> BudgetNode:
    """The node's settings and the roles given there, leads first, by name."""
    roles = sorted(world.members.get(name, {}).items())
    leads = [account for account, role in roles if role == LEAD]
    members = [account for account, role in roles if role == MEMBER]
    return BudgetNode(
        budget=name,
        parent=node.parent,
        weight=node.weight,
        order=node.order,
        max_protected_permille=node.max_protected_permille,
        burst_permille=node.burst_permille,
        leads=tuple(leads[:MAX_ACCOUNTS]),
        members=tuple(members[:MAX_ACCOUNTS]),
        more_accounts=max(0, len(leads) - MAX_ACCOUNTS) + max(0, len(members) - MAX_ACCOUNTS),
        is_everybodys=is_everybodys(world.members, world.tree.path(name)),
    )


def hosts_view(world: World) -> HostsView:
    """Every registered host, by id, and the pools in which silent ones are not held by themselves."""
    since_ms = world.log_time_ms - (world.policy.breaker_span_ms if world.policy is not None else 0)
    tripped = {pool: at_ms for pool, at_ms in sorted(world.breaker.items()) if at_ms > since_ms}
    rows = [_host_row(world, host) for _, host in sorted(world.fleet.hosts.items())]
    return HostsView(rows=tuple(rows), as_of=as_of(world), tripped=tripped)


def _host_row(world: World, host: Host) -> HostRow:
    inventory = host.inventory
    return HostRow(
        host=host.id,
        pool=inventory.pool,
        model=inventory.model,
        block=inventory.block,
        gpus=host.gpus,
        free_gpus=len(world.fleet.free_gpus(host.id)),
        is_simulated=inventory.is_simulated,
        holds=holds_told(host),
        attempts=tuple(world.fleet.attempts_on(host.id)),
        drain=drain_view(world, host.id),
    )


def holds_told(host: Host) -> tuple[str, ...]:
    """The host's holds as people read them, the oldest first."""
    return tuple(f"{hold.kind} ({hold.owner})" + (f": {hold.reason}" if hold.reason else "") for hold in host.holds)


def drain_view(world: World, host: HostId) -> DrainView | None:
    """The host's drain as it stands, if it has one."""
    known = world.fleet.hosts.get(host)
    drain = known.drain if known is not None else None
    if known is None or drain is None:
        return None
    is_begun = known.is_held_as(DRAIN)
    state = "queued" if drain.is_queued else "drained" if drain.is_done else "draining" if is_begun else "planned"
    pool = known.inventory.pool
    before = [h.id for h in world.fleet.draining() if h.inventory.pool == pool and h.closes_ms is not None]
    return DrainView(
        owner=drain.owner,
        state=state,
        start_ms=drain.start_ms,
        deadline_ms=drain.deadline_ms or None,
        empty_ms=None if drain.is_queued else drain.empty_ms,
        left=len(world.fleet.attempts_on(host)),
        reason=drain.reason,
        external_id=drain.external_id,
        behind=tuple(before[:MAX_BEFORE]) if drain.is_queued else (),
    )


def policy_view(world: World) -> PolicyView:
    """The policy in force with every number, defaults written out."""
    policy = world.policy
    numbers = _told(policy) or {"window_bounds": []}
    return PolicyView(name=world.policy_name, policy=numbers, as_of=as_of(world))


def _numbers(policy: Policy | None, changes: tuple[Change, ...]) -> tuple[tuple[NumberChange, ...], ...]:
    """For each change the policy's numbers that it would leave otherwise than they are when its turn has come."""
    found: list[tuple[NumberChange, ...]] = []
    for change in changes:
        if not isinstance(change, ChangePolicy):
            found.append(())
            continue
        now, then = _told(policy), _told(change.policy)
        found.append(tuple(NumberChange(number=n, now=now.get(n), then=v) for n, v in then.items() if now.get(n) != v))
        policy = change.policy
    return tuple(found)


def _told(policy: Policy | None) -> dict[str, Any]:
    """Every number of a policy, defaults written out, as an answer has them; none of no policy."""
    numbers: dict[str, Any] = msgspec.to_builtins({} if policy is None else msgspec.structs.asdict(policy))
    return numbers


def proposals_view(world: World) -> ProposalsView:
    """Open proposals, with what they would change of what is in force and the reports on them."""
    policy = world.policy
    rows = [
        ProposalRow(
            proposal=name,
            author=one.author,
            at_ms=one.at_ms,
            position=one.position,
            log_digest=one.log_digest,
            change=one.change,
            changes=tuple(msgspec.to_builtins(one.changes)),
            numbers=_numbers(policy, one.changes),
            reports=tuple(
                ReportRow(digest=digest, **msgspec.structs.asdict(report)) for digest, report in one.reports.items()
            ),
            forced_by=one.forced_by,
            is_stale=policy is not None and is_stale(one, policy, world.changed_position, world.log_time_ms),
        )
        for name, one in sorted(world.proposals.items())
    ]
    return ProposalsView(rows=tuple(rows), as_of=as_of(world))
