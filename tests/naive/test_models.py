"""The fast functions of the core against slow ones, on random states of cells that live (STYLE.md, tests).

Some ten states of each life are compared, each by every question that could be asked of it: 1,000 states in the
ordinary run, 10,000 in the long one, counted, with the kinds of answers that were seen, so that nothing is compared
with nothing. A failure prints the seed and the life, made as small as it gets.
"""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product

import pytest
from hypothesis import strategies as st

from fairlease.core.departures import Departure
from fairlease.core.fairshare.fade import Lookback
from fairlease.core.fairshare.next_pick import Picker
from fairlease.core.fairshare.order import members_in_order
from fairlease.core.fairshare.rank import rank
from fairlease.core.fairshare.scales import Scales
from fairlease.core.fairshare.standing import standings
from fairlease.core.fairshare.usage import Meter
from fairlease.core.placement.fit import Room
from fairlease.core.placement.shape import Shape
from fairlease.core.placement.sides import NONE
from fairlease.core.preemption import occupancy as occupancies
from fairlease.core.preemption.licence import Permit, permit_for
from fairlease.core.preemption.promise import soonest
from fairlease.core.preemption.victims import Plan, cheapest_on, plan_now
from fairlease_schemas.cycle import Licence
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import job_of
from fairlease_schemas.policy import Policy
from tests.dsl.cell import HOUR, MINUTE
from tests.laws.examine import SEED, examine
from tests.naive import eviction as slow
from tests.naive import picking
from tests.naive import standing as books
from tests.naive.living import GPUS, Law, Life, Living, lives

STATES_PER_LIFE = 12
STATES = [pytest.param(1_000, id="1000 states"), pytest.param(10_000, id="10000 states", marks=pytest.mark.long)]
SHAPES = (Shape(1, 1), Shape(1, 2), Shape(1, 3), Shape(1, GPUS), Shape(2, GPUS), Shape(3, GPUS))


Question = Callable[[Living, books.History, Counter[str]], None]


class Compare(Law):
    """Asks `question` of some of the moments at which a life is at rest, spread by chance of its own seed."""

    def __init__(self, question: Question, seed: int, seen: Counter[str]) -> None:
        self.history = books.History()
        self._question = question
        self._chance = random.Random(seed)
        self._seen = seen
        self._left = STATES_PER_LIFE

    def after(self, cell: Living, record: Record) -> None:
        self.history.add(cell.records[-1])

    def at_rest(self, cell: Living) -> None:
        if self._left and cell.jobs and self._chance.random() < 0.25:
            self._left -= 1
            self._seen["states"] += 1
            self._question(cell, self.history, self._seen)


def compare(question: Question, states: int, *kinds: str) -> None:
    """The question, asked of so many states; each of these kinds of answers was among them, and not seldom."""
    print(f"seed {SEED}")
    seen: Counter[str] = Counter()

    def law(life: Life) -> None:
        if seen["states"] < states or seen["failed"]:
            seen["failed"] += 1  # until it has not: a life that fails is made smaller by living on
            Living(life, Compare(question, len(life.steps), seen)).live()
            seen["failed"] -= 1

    examine(law, lives(), states // 5)
    assert seen["states"] >= states
    assert not [kind for kind in kinds if seen[kind] < states // 20], f"seldom seen: {seen}"


def same_standings(cell: Living, history: books.History, seen: Counter[str]) -> None:
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    for pool in world.fleet.pools():
        for now_ms in (world.log_time_ms, cell.now_ms, cell.now_ms + 7 * MINUTE + 1):
            fast = {
                n.budget: (n.entitled_gpu_ms, n.used_gpu_ms, n.promised_gpu_ms) for n in standings(world, pool, now_ms)
            }
            found = books.standings(history, world, policy, pool, now_ms)
            assert fast == {name: tuple(number) for name, number in found.items()}
            seen["used"] += any(number.used for number in found.values())
            seen["promised"] += any(number.promised for number in found.values())
            seen["faded"] += policy.half_life_ms > 0
            seen["lump"] += any(lump for *_, lump in history.lumps)


def _is_due_first(picker: Picker) -> bool:
    """Whether some leaves with candidates are due more and others are not."""
    return 0 < sum(node.due_more for node in picker.scales.roots) < sum(n.candidates for n in picker.scales.roots)


def same_picks(cell: Living, _history: books.History, seen: Counter[str]) -> None:
    """Both pickers are told the same of every pick: mostly granted or blocked, seldom counted already or gone."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    if not world.line.total:
        return
    chance = random.Random(world.position)
    for pool in rank(world, policy, cell.now_ms, first=0).pools:
        due, members = policy.due_first_permille, lambda key: members_in_order(world, key, cell.now_ms)
        fast, other = Picker(pool, members, due_first_permille=due), picking.SlowPicker(pool, members, due)
        while (pick := fast.next()) is not None:
            assert other.next() == (pick.job, pick.of.key, pick.licence)
            seen[pick.licence] += 1
            seen["due first"] += _is_due_first(fast)
            answer = chance.choice(("granted", "granted", "blocked", "skip", "counted"))
            if answer in ("granted", "counted"):
                fast.granted(is_counted=answer == "counted")
                other.granted(is_counted=answer == "counted")
            else:
                getattr(fast, answer)()
                getattr(other, answer)()
        assert other.next() is None


def _sides(cell: Living, history: books.History, pool: str) -> list[tuple[slow.Side, Permit]]:
    """Claims that anybody could make here: every leaf, by every licence, with a short and a long window."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    numbers = books.standings(history, world, policy, pool, cell.now_ms)
    tree = history.moments[-1].tree
    scales = Scales(standings(world, pool, cell.now_ms))
    found = []
    for leaf in cell.leaves:
        for licence, window in ((Licence.UNDER_SHARE, MINUTE), (Licence.UNDER_SHARE, HOUR), (Licence.DEBUG, MINUTE)):
            side = slow.side_of(policy, leaf, licence, GPUS * window, numbers, tree)
            permit = permit_for(policy, scales, leaf, licence, GPUS * window, is_counted=False)
            found.append((side, permit))
    return found


def same_victims(cell: Living, history: books.History, seen: Counter[str]) -> None:
    """Of every claim that finds no room: who leaves for it."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    for pool in world.fleet.pools():
        here = slow.tenants(world, policy, pool, cell.now_ms)
        room, tenants = Room(world, pool, cell.now_ms), occupancies.occupancy(world, policy, pool, cell.now_ms)
        hosts = slow.open_hosts(world, pool, cell.now_ms)
        known: dict[tuple[object, ...], dict[tuple[str, ...], slow.Cost]] = {}
        for side, permit in _sides(cell, history, pool):
            able = [tenant for tenant in here if slow.is_evictable(side, tenant)]
            seen["due first"] += any(side.is_due_more(side.leaf) != side.is_due_more(t.leaf) for t in here)
            for shape in SHAPES:
                key = (shape, *able)
                if key not in known:
                    known[key] = slow.plans(world, hosts, shape.hosts, shape.gpus_per_host, able)
                if all(jobs for _, jobs, *_ in known[key].values()):
                    plan = plan_now(tenants, room, shape, permit)
                    _same_plan(cell, shape, able, plan, known[key])
                    seen["hopeless" if plan is None else "gang" if shape.hosts > 1 else "one host"] += 1
                    seen["several"] += plan is not None and len(plan.victims) > 1


def _same_plan(
    cell: Living, shape: Shape, able: list[slow.Tenant], plan: Plan | None, options: dict[tuple[str, ...], slow.Cost]
) -> None:
    """On one host exactly the cheapest set; of a gang a set that suffices and asks nobody whom it could spare.

    A gang's is the cheapest within one block where nobody stands on two hosts.
    """
    world, gpus = cell.world, shape.gpus_per_host
    if not options:
        assert plan is None, f"{plan} for {shape}, and no set would do"
        return
    loss, hosts = min((loss, some) for some, loss in options.items())
    assert plan is not None, f"{shape} could have {hosts} for {loss}"
    victims = [t for t in able if t.attempt in {v.attempt for v in plan.victims}]
    assert len(victims) == len(plan.victims), "somebody leaves who may not be asked to"
    assert slow.suffices(world, plan.hosts, gpus, victims)
    for spared in victims:
        assert not slow.suffices(world, plan.hosts, gpus, [t for t in victims if t is not spared])
    if shape.hosts == 1:
        assert (slow.cost(victims), plan.hosts) == (loss, hosts)
    elif (
        all(len(tenant.on) == 1 for tenant in able) and len({world.fleet.hosts[h].inventory.block for h in hosts}) == 1
    ):
        assert slow.cost(victims)[:3] == loss[:3]


def same_calendar(cell: Living, history: books.History, seen: Counter[str]) -> None:
    """The earliest provable start of every claim, for promises and for people who ask."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    for pool in world.fleet.pools():
        here = slow.tenants(world, policy, pool, cell.now_ms)
        room, tenants = Room(world, pool, cell.now_ms), occupancies.occupancy(world, policy, pool, cell.now_ms)
        hosts = slow.open_hosts(world, pool, cell.now_ms)
        known: dict[tuple[object, ...], int | None] = {}
        for side, permit in _sides(cell, history, pool):
            may_leave = [tenant for tenant in here if slow.is_licensed(side, tenant)]
            for shape, is_all in product(SHAPES, (True, False)):
                key = (shape, is_all, *may_leave)
                if key not in known:
                    wanted = (shape.hosts, shape.gpus_per_host)
                    ask = slow.earliest_ms(world, policy, hosts, wanted, here, cell.now_ms, is_all=is_all)
                    known[key] = ask(may_leave.__contains__)
                proof = soonest(tenants, room, shape, permit, "job-nobody", is_promise=is_all)
                assert (proof.start_ms if proof is not None else None) == known[key]
                seen["never" if proof is None else "now" if proof.start_ms == cell.now_ms else "later"] += 1
                if proof is not None:
                    assert set(proof.hosts) <= set(hosts)
                    assert len(proof.hosts) == shape.hosts


@pytest.mark.parametrize("states", STATES)
def test_standings_are_what_adding_up_every_piece_gives(states: int) -> None:
    compare(same_standings, states, "used", "promised", "faded", "lump")


@pytest.mark.parametrize("states", STATES)
def test_who_is_next_is_who_comes_first_when_all_are_ranked_again(states: int) -> None:
    compare(same_picks, states, "due first", *(kind for kind in Licence if kind not in (Licence.DRAIN, Licence.MOVE)))


@pytest.mark.parametrize("states", STATES)
def test_victims_are_the_cheapest_of_all_sets_that_would_do(states: int) -> None:
    compare(same_victims, states, "due first", "hopeless", "one host", "gang", "several")


@pytest.mark.parametrize("states", STATES)
def test_the_calendar_finds_the_earliest_of_all_sets_of_hosts(states: int) -> None:
    compare(same_calendar, states, "never", "now", "later")


_NEIGHBOURS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=7
)


@pytest.mark.parametrize("states", STATES)
def test_on_one_host_the_cheapest_set_is_found_among_many_alike(states: int) -> None:
    """Losses so few that ties are common: then fewer jobs, then idle ones, then the lower ids (5.4)."""

    def law(drawn: tuple[list[tuple[int, int, bool, bool]], int]) -> None:
        neighbours, needed = drawn
        fast, able = [], []
        for number, (gpus, lost, is_idle, may_leave) in enumerate(neighbours):
            name = f"job-{number}-a1"
            same = {"attempt": name, "leaf": "a", "is_idle": is_idle, "is_lane": False, "is_past": may_leave}
            one = slow.Tenant(**same, parts=(("host-001", gpus),), lost=lost, is_stopping=False, end_ms=0, grace_ms=0)
            able += [one] if may_leave else []
            fast.append(_as_seen(one))
        found = cheapest_on(
            object.__new__(Room), fast, "host-001", (needed,), lambda tenant: tenant.is_past, bound_gpu_ms=None
        )
        costs = [slow.cost(some) for some in slow.subsets(able) if sum(t.on["host-001"] for t in some) >= needed]
        assert (found[0] if found is not None else None) == min(costs, default=None)
        if found is not None:
            assert tuple(sorted(tenant.attempt for tenant in found[1])) == found[0][3]

    examine(law, st.tuples(_NEIGHBOURS, st.integers(0, 8)), states)


def _as_seen(tenant: slow.Tenant) -> occupancies.Tenant:
    return occupancies.Tenant(
        attempt=tenant.attempt,
        job=job_of(tenant.attempt),
        leaf=tenant.leaf,
        gpus_on=tenant.on,
        sizes=NONE,
        lost_gpu_ms=tenant.lost,
        grace_ms=tenant.grace_ms,
        is_idle=tenant.is_idle,
        is_lane=tenant.is_lane,
        is_past=tenant.is_past,
        is_exempt=False,
        is_stopping=tenant.is_stopping,
        leaves=Departure(tenant.end_ms, tenant.grace_ms),
        checkpoint_due_ms=0,
        start_up_ms=0,
    )


_LAST_MS = 2_400
_CHANGES = st.lists(st.tuples(st.integers(0, 900), st.integers(-3, 5)), min_size=1, max_size=6)


@pytest.mark.parametrize("states", STATES)
def test_a_faded_integral_is_the_sum_over_every_millisecond(states: int) -> None:
    """Half-lives so short that a step is a few milliseconds long, and values so large that old weights still count."""

    def law(drawn: tuple[list[tuple[int, int]], int, int, int, int]) -> None:
        changes, scale, half_life_ms, lookback_ms, now_ms = drawn
        meter, values = Meter(), [0] * _LAST_MS
        for at_ms, delta in sorted((at_ms, delta * scale) for at_ms, delta in changes):
            meter.add(at_ms, delta, forget_before_ms=-1)
            values[at_ms:] = [value + delta for value in values[at_ms:]]
        policy = Policy(half_life_ms=half_life_ms, lookback_ms=lookback_ms)
        pieces = [(at_ms, at_ms + 1, value) for at_ms, value in enumerate(values)]
        times = sorted({0, now_ms, *(at_ms for at_ms, _ in changes)})
        for from_ms, to_ms in pairwise(times):
            part = [piece for piece in pieces if from_ms <= piece[0] < to_ms]
            assert Lookback(policy, now_ms).integral(meter, from_ms, to_ms) == books.faded(policy, now_ms, part)

    halves = st.sampled_from((0, 1, 64, 128, 640, 10_000))
    spans = st.integers(1, _LAST_MS) | st.just(_LAST_MS)
    nows = st.integers(0, _LAST_MS - 1) | st.integers(_LAST_MS - 300, _LAST_MS - 1)
    drawn = st.tuples(_CHANGES, st.sampled_from((1, 10**9, 10**12)), halves, spans, nows)
    examine(law, drawn, states)
