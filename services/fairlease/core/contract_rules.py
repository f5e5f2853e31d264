"""What a contract may ask for: the rules of decisions.md 1 that need the cell to be judged.

The shape of a contract (types, units, unknown keys) was judged at the edge. Every refusal names
the field, the rule, the limit, the value and the way out; all problems are found, not the first.
"""

from fairlease.core import constraint
from fairlease.core.advice import advise
from fairlease.core.job import replace
from fairlease.core.membership import leads_of, role_of, shown
from fairlease.core.policy_rules import window_bound
from fairlease.core.words import Number
from fairlease.core.world import World
from fairlease_schemas.ids import AccountId, BudgetId
from fairlease_schemas.job import Advice, Problem, Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import format_length

MAX_HOSTS = 2_048
"""Hosts of a gang, as the contract has it too: the grant, with the longest names there may be, fits one record (L2)."""


SMALLER = "make it smaller, or leave the debug lane"


def effective_request(world: World, policy: Policy, asked: Request) -> Request:
    """The request as it will be scheduled.

    No pools means every pool of the cell that could take the gang, by id; not resumable means that
    the window is the whole timeout (1.6); grace is capped (1.7).
    """
    pools = asked.pools or tuple(pool for pool in world.fleet.pools() if constraint.could_take(world, pool, asked))
    window_ms = asked.min_runtime_ms if asked.is_resumable or asked.min_runtime_ms == 0 else asked.timeout_ms
    return replace(asked, pools=pools, min_runtime_ms=window_ms, grace_ms=min(asked.grace_ms, policy.grace_cap_ms))


def check(
    world: World, policy: Policy, account: AccountId, budget: BudgetId, request: Request, now_ms: int
) -> tuple[tuple[Problem, ...], tuple[Advice, ...]]:
    """Every problem of an effective request, in the order of the rules; and advice when there is none."""
    problems = [
        *(_budget(world, budget) or _member(world, account, budget)),
        *(_lane_size(world, policy, request) or _gang(request) or _pools(world, request)),
        *(_debug(policy, request) if request.lane else _window(policy, request)),
        *_resumable(policy, request),
    ]
    return tuple(problems), (() if problems else advise(world, policy, budget, request, now_ms))


def _budget(world: World, budget: BudgetId) -> list[Problem]:
    tree = world.tree
    if tree.is_leaf(budget):
        return []
    if budget in tree.nodes:
        below = ", ".join(tree.children(budget)[:8])
        return [
            Problem(
                field="spec.budget",
                rule="1.1",
                value=budget,
                limit="a leaf of the tree",
                way_out=f"charge one of {below}",
            )
        ]
    leaves = ", ".join(tree.leaves()[:8]) or "none yet"
    return [
        Problem(
            field="spec.budget",
            rule="1.1",
            value=budget[:80],
            limit="a leaf of the tree",
            way_out=f"leaves: {leaves}; a lead makes one with `fairlease budget set NAME --weight N`",
        )
    ]


def _member(world: World, account: AccountId, budget: BudgetId) -> list[Problem]:
    """Rule 1.1: who submits is a member or a lead of the budget, or of one above it."""
    if role_of(world.tree, world.members, account, budget):
        return []
    leads = shown(leads_of(world.tree, world.members, budget))
    return [
        Problem(
            field="spec.budget",
            rule="1.1",
            value=budget,
            limit="a budget that this account is a member of",
            way_out=f"ask {leads} for `fairlease budget member {budget} {account}`",
        )
    ]


def _gang(request: Request) -> list[Problem]:
    """Rule 1.2: no more hosts than one record can grant. The contract says so too; a request may come without one."""
    if request.hosts <= MAX_HOSTS:
        return []
    return [
        Problem(
            field="spec.hosts",
            rule="1.2",
            value=f"{request.hosts} hosts",
            limit=f"{MAX_HOSTS} hosts: a gang is granted in one record",
            way_out="take hosts with more GPUs, or split the work into several gangs",
        )
    ]


def _pools(world: World, request: Request) -> list[Problem]:
    known = world.fleet.pools()
    unknown = [pool for pool in request.pools if pool not in known]
    if unknown:
        way_out = f"pools: {', '.join(known[:8]) or 'none yet, no host is registered'}"
        return [Problem(field="spec.pools", rule="1.3", value=unknown[0], limit="a pool of the cell", way_out=way_out)]
    if any(constraint.could_take(world, pool, request) for pool in request.pools):
        return []
    accepted = request.pools or tuple(known)
    bare = replace(request, cpu_per_host=0, memory_per_host_mib=0, disk_per_host_mib=0, constraints=None)
    if any(constraint.could_take(world, pool, bare) for pool in accepted):
        return constraint.problems_of(world, accepted, request)
    sizes: dict[tuple[str, int], int] = {}
    for pool in known:
        for host in world.fleet.in_pool(pool):
            sizes[pool, host.gpus] = sizes.get((pool, host.gpus), 0) + 1
    has = ", ".join(f"{pool}: {Number(n):host} of {Number(gpus):GPU}" for (pool, gpus), n in sorted(sizes.items()))
    whole = " (more than one host means whole hosts)" if request.hosts > 1 else ""
    # Of a gang that would fit if it took whole hosts, the size of a host is all that is wrong.
    fit = [gpus for (_, gpus), n in sorted(sizes.items()) if n >= request.hosts > 1 and gpus > request.gpus_per_host]
    way_out = (
        f"take whole hosts, with `--gpus {fit[0]}`" if fit else "ask for a gang that the hosts could take when empty"
    )
    return [
        Problem(
            field="spec.hosts" if request.hosts > 1 else "spec.gpus_per_host",
            rule="1.3",
            value=f"{request.hosts} x {Number(request.gpus_per_host):GPU}{whole}",
            limit=(has or "no host is registered")[:300],
            way_out=way_out,
        )
    ]


def _window(policy: Policy, request: Request) -> list[Problem]:
    """Rule 1.4: idle work has none; a window that is the whole timeout (1.6) has no lower bound."""
    window_ms = request.min_runtime_ms
    if window_ms == 0:
        return []
    gpus = request.hosts * request.gpus_per_host
    bound = window_bound(policy, gpus)
    too_short = request.is_resumable and window_ms < bound.shortest_ms
    too_long = request.is_resumable and window_ms > bound.longest_ms
    if not too_short and not too_long:
        return []
    bounds = f"{format_length(bound.shortest_ms)} to {format_length(bound.longest_ms)}"
    return [
        Problem(
            field="spec.min_runtime",
            rule="1.4",
            value=format_length(window_ms),
            limit=f"{bounds} for {Number(gpus):GPU}",
            way_out=f"choose {bounds}, or 0s for idle work: free, and preemptible at once",
        )
    ]


def _lane_size(world: World, policy: Policy, request: Request) -> list[Problem]:
    """Rule 3.1: how many GPUs the debug lane takes; a gang of several hosts has all of theirs."""
    per_host, note = request.gpus_per_host, ""
    if request.hosts > 1:
        pools = [pool for pool in request.pools if pool in world.fleet.pools()] or world.fleet.pools()
        whole = min((host.gpus for pool in pools for host in world.fleet.in_pool(pool)), default=per_host)
        if whole > per_host:
            per_host, note = whole, f": more than one host means whole hosts, of {whole} GPUs here"
    gpus = request.hosts * per_host
    if not request.lane or gpus <= policy.debug_max_gpus:
        return []
    return [
        Problem(
            field="spec.hosts" if request.hosts > 1 else "spec.gpus_per_host",
            rule="3.1",
            value=f"{gpus} GPUs{note}",
            limit=f"{Number(policy.debug_max_gpus):GPU} in the debug lane",
            way_out=SMALLER,
        )
    ]


def _debug(policy: Policy, request: Request) -> list[Problem]:
    """Rule 3.1: what the debug lane takes beside so many GPUs."""
    window, timeout = format_length(request.min_runtime_ms), format_length(request.timeout_ms)
    most_window, most_timeout = format_length(policy.debug_max_window_ms), format_length(policy.debug_max_timeout_ms)
    problems = []
    if not 0 < request.min_runtime_ms <= policy.debug_max_window_ms:
        field = "spec.min_runtime" if request.is_resumable else "spec.timeout"
        problems.append(Problem(field=field, rule="3.1", value=window, limit=f"above 0s, up to {most_window}"))
    if request.timeout_ms > policy.debug_max_timeout_ms:
        problems.append(Problem(field="spec.timeout", rule="3.1", value=timeout, limit=f"up to {most_timeout}"))
    return [replace(problem, way_out=SMALLER) for problem in problems]


def _resumable(policy: Policy, request: Request) -> list[Problem]:
    """Rule 1.6: what cannot be resumed cannot be time-sliced, so its whole timeout is protected, and capped."""
    if request.is_resumable:
        return []
    if request.min_runtime_ms == 0:
        return [
            Problem(
                field="spec.resumable",
                rule="1.6",
                value="false with min_runtime 0s",
                limit="idle work may be stopped at any time",
                way_out="write resumable: true if it may start over, or give it a window",
            )
        ]
    if request.timeout_ms <= policy.non_resumable_cap_ms:
        return []
    return [
        Problem(
            field="spec.timeout",
            rule="1.6",
            value=format_length(request.timeout_ms),
            limit=f"{format_length(policy.non_resumable_cap_ms)} when not resumable",
            way_out="write checkpoints and resumable: true, or split the work",
        )
    ]
