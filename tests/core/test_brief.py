"""What a rank leaves out so that it fits one record, and that placement decides the same without it."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from fairlease.core.budget import MAX_DEPTH, MAX_NODES, Node, Piece, Tree
from fairlease.core.contract_rules import MAX_HOSTS
from fairlease.core.decision import Decision, record_of
from fairlease.core.fairshare import brief, rank
from fairlease.core.fairshare.usage import Meter
from fairlease.core.host import MAX_GPUS, MAX_POOLS, Host
from fairlease.core.job import Attempt, Job, Phase, replace
from fairlease.core.placement import place
from fairlease.core.state import State
from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.cycle import (
    CyclePlaced,
    CycleRanked,
    GangGranted,
    Licence,
    NodeStanding,
    Part,
    PromiseMade,
    ReservationMade,
)
from fairlease_schemas.envelope import MAX_RECORD_BYTES, Address, Record
from fairlease_schemas.ids import attempt_id, job_id
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import ReasonBegan
from tests.dsl.cell import DAY, HOUR, MINUTE, T0, Cell, inventory, request

POLICY = Policy()


def long(text: str) -> str:
    """The longest name there may be that begins so."""
    return f"{text:x<63}"


POOLS = tuple(long(f"pool-{n:02d}-") for n in range(MAX_POOLS))
LEAVES = tuple(long(f"leaf-{n:04d}-") for n in range(MAX_NODES - MAX_DEPTH + 1))


def full_tree() -> Tree:
    """As many budgets as there may be: a chain as deep as it goes, and all leaves at its end."""
    chain = [long(f"org-{n}-") for n in range(MAX_DEPTH - 1)]
    nodes = {name: Node(parent, 1_000_000) for parent, name in zip(("", *chain), chain, strict=False)}
    nodes |= {leaf: Node(chain[-1], 1_000_000) for leaf in LEAVES}
    assert len(nodes) == MAX_NODES
    return Tree(dict(sorted(nodes.items())))


def waits(number: int, **fields: object) -> Job:
    """A job of a class of its own, in the lane, with the longest names: what takes most of a rank."""
    leaf, account = LEAVES[number], long(f"account-{number:04d}-")
    asked = request(pools=POOLS, gpus_per_host=MAX_GPUS, lane="debug", min_runtime_ms=10**11 + number, **fields)
    return Job(
        id=job_id(account, leaf, "waits"),
        account=account,
        budget=leaf,
        request_id="waits",
        digest="",
        request=asked,
        admitted=Address(1, 10**9 + number, 0),
        submitted_ms=T0,
    )


def runs(number: int, host: Host) -> Job:
    """A job that holds the host's first GPU, charged to the leaf of that number."""
    leaf, name = LEAVES[number], job_id("ann", LEAVES[number], "runs")
    attempt = Attempt(
        id=attempt_id(name, 1),
        number=1,
        pool=host.inventory.pool,
        parts=(Part(host=host.id, gpus=(0,)),),
        token=Address(1, 2 + number, 0),
        granted_ms=T0,
        window_ms=10**11,
        licence=Licence.UNDER_SHARE,
    )
    return Job(
        id=name,
        account="ann",
        budget=leaf,
        request_id="runs",
        digest="",
        request=request(pools=(host.inventory.pool,), min_runtime_ms=10**11, timeout_ms=10**11),
        admitted=Address(1, 1, number),
        submitted_ms=T0,
        phase=Phase.GRANTED,
        attempts=(attempt,),
    )


def largest(waiting: int, running: int) -> World:
    """A cell with the fullest tree, the most pools and the longest names; who runs is spread over the pools."""
    hosts = [Host(f"host-{n}", "boot-1", inventory(n + 1, pool=POOLS[n % MAX_POOLS])) for n in range(running)]
    jobs = [waits(number) for number in range(waiting)] + [runs(n, host) for n, host in enumerate(hosts)]
    schedulable = {pool: Meter() for pool in POOLS}
    for meter in schedulable.values():
        meter.add(T0 - 7 * DAY, 10**6, forget_before_ms=0)
    state = State(
        log_time_ms=T0 + HOUR,
        policy=POLICY,
        policy_name=long("policy-"),
        jobs={job.id: job for job in jobs},
        pieces=[Piece(T0 - 7 * DAY, full_tree())],
        hosts={host.id: host for host in hosts},
        schedulable=schedulable,
    )
    return World(state)


@pytest.mark.parametrize(
    ("waiting", "running"),
    [
        pytest.param(1, 0, id="a tree of 2,000 budgets in 16 pools"),
        pytest.param(300, 0, id="and 300 classes, each in all pools"),
        pytest.param(1, MAX_NODES - MAX_DEPTH + 1, id="and every leaf runs something"),
        pytest.param(300, MAX_NODES - MAX_DEPTH + 1, id="all of it at once"),
    ],
)
def test_the_largest_rank_there_can_be_fits_its_record(waiting: int, running: int) -> None:
    world = largest(waiting, running)
    first, is_cut = 0, True
    for _ in range(3):
        event = rank.rank(world, POLICY, T0 + HOUR, first=first)
        decision = Decision(kind="cycle-ranked", at_ms=T0 + HOUR, events=(event,), causes=(Address(1, 1, 0),))
        assert len(codec.sealed(record_of(world, "ranker", decision))[1]) < MAX_RECORD_BYTES - 16 * 1024
        assert event.classes >= 1
        first, is_cut = first + event.classes, event.is_cut
        if not is_cut:
            break
    assert is_cut == (first < waiting)


def test_the_largest_gang_there_can_be_fits_a_record() -> None:
    world, hosts = largest(1, 0), tuple(long(f"host-{n:05d}-") for n in range(MAX_HOSTS))
    name = job_id("ann", LEAVES[0], "r1")
    events = (
        GangGranted(
            job=name,
            attempt=attempt_id(name, 10**9),
            number=10**9,
            pool=POOLS[0],
            parts=tuple(Part(host=host, gpus=tuple(range(MAX_GPUS))) for host in hosts),
            window_ms=10**12,
            licence=Licence.UNDER_SHARE,
        ),
        ReservationMade(job=name, pool=POOLS[0], hosts=hosts, for_ms=10**12),
        PromiseMade(
            job=name,
            pool=POOLS[0],
            hosts=hosts,
            start_in_ms=10**12,
            latest_in_ms=10**12,
            grace_ms=10**12,
            licence=Licence.UNDER_SHARE,
        ),
    )
    for event in events:
        decision = Decision(kind="any", at_ms=T0, events=(event,), causes=(Address(1, 1, 0), Address(1, 10**9, 0)))
        assert len(codec.sealed(record_of(world, "placement", decision))[1]) < MAX_RECORD_BYTES


def test_an_ordinary_rank_names_every_budget() -> None:
    here = Cell().hosts(1).budgets(org=2, org__a=1, b=1, c=1)
    here.submit("r1", settle=False)
    assert here.world.policy is not None
    event = rank.rank(here.world, here.world.policy, here.now_ms, first=0)
    assert [node.budget for node in event.pools[0].nodes] == ["b", "c", "org", "a"]


def test_a_large_rank_names_the_paths_of_those_who_wait_or_run_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(org=2, org__a=1, org__b=1, c=1, d=1, e=1)
    here.submit("r1", "c", pools=("h100",), gpus_per_host=8)
    here.submit("r2", "d", pools=("l40s",), gpus_per_host=8)
    here.submit("r3", "a", pools=("h100",), gpus_per_host=8)
    here.submit("r4", "e", pools=("l40s",), gpus_per_host=8)
    assert here.world.policy is not None
    monkeypatch.setattr(rank, "MAX_RANK_BYTES", 0)
    short = rank.rank(here.world, here.world.policy, here.now_ms, first=0)
    named = {pool.pool: [node.budget for node in pool.nodes] for pool in short.pools}
    assert named == {"h100": ["c", "org", "a"], "l40s": ["d", "e"]}


def crowded(seed: int, watch: Callable[[Cell, Record], None]) -> Cell:
    """A small cell with a deep tree and more work than room, over half a day: work past its window, idle work."""
    chance = random.Random(seed)
    here = Cell(watch).hosts(3).hosts(2, pool="l40s", first=4)
    here.policy(margin_permille=0, patience_ms=0, rank_period_ms=10 * MINUTE)
    here.budgets(org=3, org__a=1, org__b=2, lab=2, lab__c=1, lab__d=1, e=1, f=1, unused=1)
    for number in range(30):
        pools = chance.choice([("h100",), ("l40s",), ()])
        hosts = chance.choice([1, 1, 1, 2])
        shape: dict[str, object] = {
            "hosts": hosts,
            "gpus_per_host": 8 if hosts > 1 else chance.choice([1, 2, 4, 8]),
            "pools": pools,
            "min_runtime_ms": chance.choice([0, 15 * MINUTE, HOUR]),
            "timeout_ms": 9 * HOUR,
        }
        if number % 7 == 6:
            shape = {"lane": "debug", "pools": pools, "min_runtime_ms": MINUTE, "timeout_ms": HOUR}
        here.submit(f"r{number}", chance.choice("abcdef"), settle=False, **shape)
        if number % 5 == 4:
            here.at((number // 5 + 1) * 100 * MINUTE)
    return here


@pytest.mark.parametrize("seed", range(4))
def test_placement_decides_the_same_over_a_brief_rank(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[object] = Counter()

    def compare(here: Cell, record: Record) -> None:
        """Once a cycle is ranked: placement over that rank, and over the brief one that it would have been."""
        world, policy, whole = here.world, here.world.policy, here.world.cycle.ranked
        if record.by != "ranker" or whole is None or policy is None:
            return
        with monkeypatch.context() as patch:
            patch.setattr(rank, "MAX_RANK_BYTES", 0)
            short = rank.rank(world, policy, record.at_ms, first=whole.first_class)
            placed = place.decide(world, ())
            patch.setattr(world.cycle, "ranked", replace(short, cycle=whole.cycle))
            assert place.decide(world, ()) == placed
        assert placed is not None
        for event in placed.events:
            if isinstance(event, CyclePlaced):
                seen["claims"] += len(event.claims)
                seen["blocked"] += len(event.blocked)
            else:
                seen[type(event)] += 1
        seen["left out"] += sum(len(a.nodes) - len(b.nodes) for a, b in zip(whole.pools, short.pools, strict=True))

    crowded(seed, compare)
    assert all(seen[what] for what in (GangGranted, ReasonBegan, "claims", "blocked", "left out")), seen


def test_classes_that_do_not_fit_are_the_next_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "MAX_RANK_BYTES", 0)
    monkeypatch.setattr(brief, "MAX_CLASS_BYTES", 1_000)
    here = Cell().hosts(1).budgets(a=1)
    here.submit("full", gpus_per_host=8, timeout_ms=24 * HOUR)
    jobs = [here.submit(f"r{n}", gpus_per_host=8, min_runtime_ms=HOUR + n, settle=False) for n in range(9)]
    before = len(here.events(CycleRanked))
    here.settle()
    ranks = [event for event in here.events(CycleRanked)[before:] if isinstance(event, CycleRanked)]
    assert [(event.first_class, event.classes, event.is_cut) for event in ranks] == [
        (0, 6, True),
        (6, 3, False),
    ]
    assert all(here.world.reason("placement", key) for key in here.world.line.classes)
    assert all(here.phase(job) == "waiting" for job in jobs)


def test_of_those_who_run_the_highest_standing_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree({name: Node("", 1) for name in ("high", "low", "none", "waits")})
    numbers = (("high", 10, 30), ("low", 10, 5), ("none", 0, 1), ("waits", 10, 0))
    nodes = tuple(NodeStanding(budget=b, weight=1, entitled_gpu_ms=e, used_gpu_ms=u) for b, e, u in numbers)
    of = rank.request_class(next(iter(waiting_class().world.line.classes.values())))
    leaves = {("h100", "low"), ("h100", "high"), ("h100", "none"), ("elsewhere", "low")}
    for most, kept in ((10**6, ["high", "low", "none", "waits"]), (0, ["waits"])):
        monkeypatch.setattr(brief, "MAX_RANK_BYTES", most)
        one = brief.Brief(tree, {"h100": nodes})
        assert one.classes([(of, ("h100",))]) == 1
        one.running(leaves)
        assert [node.budget for node in one.nodes("h100")] == kept
    one = brief.Brief(tree, {"h100": nodes})
    one.classes([(of, ("h100",))])
    so_far = brief.size(of) + brief.size(nodes[3]) + 256
    monkeypatch.setattr(brief, "MAX_RANK_BYTES", so_far + brief.size(nodes[2]) + brief.size(nodes[0]))
    one.running(leaves)
    assert [node.budget for node in one.nodes("h100")] == ["high", "none", "waits"]


def waiting_class() -> Cell:
    here = Cell().hosts(1).budgets(waits=1)
    here.submit("r1", "waits", settle=False)
    return here
