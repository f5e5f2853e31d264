"""The fast functions of the core against slow ones, on random states of cells that live (STYLE.md, tests).

Ten states of each life are compared, each by every question that could be asked of it: 1,000 states in the
ordinary run, 10,000 in the long one. A failure prints the seed and the life, made as small as it gets.
"""

import random
from collections.abc import Callable
from itertools import pairwise, product

import pytest
from hypothesis import strategies as st

from fairlease.core.fairshare.fade import Lookback
from fairlease.core.fairshare.next_pick import Picker
from fairlease.core.fairshare.order import members_in_order
from fairlease.core.fairshare.rank import rank
from fairlease.core.fairshare.scales import Scales
from fairlease.core.fairshare.standing import standings
from fairlease.core.fairshare.usage import Meter
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.preemption.licence import Permit
from fairlease.core.preemption.occupancy import occupancy
from fairlease.core.preemption.promise import soonest
from fairlease.core.preemption.victims import Plan, plan_now
from fairlease_schemas.cycle import Licence
from fairlease_schemas.envelope import Record
from fairlease_schemas.policy import Policy
from tests.dsl.cell import HOUR, MINUTE
from tests.laws.examine import SEED, examine
from tests.naive import eviction as slow
from tests.naive import picking
from tests.naive import standing as books
from tests.naive.living import GPUS, Law, Life, Living, lives

STATES_PER_LIFE = 10
LIVES = [pytest.param(100, id="1000 states"), pytest.param(1_000, id="10000 states", marks=pytest.mark.long)]
SHAPES = (Shape(1, 1), Shape(1, 2), Shape(1, 3), Shape(1, GPUS), Shape(2, GPUS), Shape(3, GPUS))


class Compare(Law):
    """Asks `question` of some of the moments at which a life is at rest, spread by chance of its own seed."""

    def __init__(self, question: Callable[[Living, books.History], None], seed: int) -> None:
        self.history = books.History()
        self._question = question
        self._chance = random.Random(seed)
        self._left = STATES_PER_LIFE

    def after(self, cell: Living, record: Record) -> None:
        self.history.add(cell.records[-1])

    def at_rest(self, cell: Living) -> None:
        if self._left and cell.jobs and self._chance.random() < 0.2:
            self._left -= 1
            self._question(cell, self.history)


def compare(question: Callable[[Living, books.History], None], count: int) -> None:
    """The question, asked of that many lives."""
    print(f"seed {SEED}")

    def law(life: Life) -> None:
        Living(life, Compare(question, len(life.steps))).live()

    examine(law, lives(), count)


def same_standings(cell: Living, history: books.History) -> None:
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    for pool in world.fleet.pools():
        for now_ms in (world.log_time_ms, cell.now_ms, cell.now_ms + 7 * MINUTE + 1):
            fast = {
                n.budget: (n.entitled_gpu_ms, n.used_gpu_ms, n.promised_gpu_ms) for n in standings(world, pool, now_ms)
            }
            found = books.standings(history, world, policy, pool, now_ms)
            assert fast == {name: tuple(number) for name, number in found.items()}


def same_picks(cell: Living, _history: books.History) -> None:
    """Both pickers are told the same of every pick: mostly granted or blocked, seldom counted already or gone."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    if not world.line.total:
        return
    chance = random.Random(world.position)
    for pool in rank(world, policy, cell.now_ms, first=0).pools:
        fast = Picker(pool, lambda key: members_in_order(world, key, cell.now_ms))
        other = picking.SlowPicker(pool, lambda key: members_in_order(world, key, cell.now_ms))
        while (pick := fast.next()) is not None:
            assert other.next() == (pick.job, pick.of.key, pick.licence)
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
            side = slow.Side(leaf, licence, GPUS * window, numbers, tree, policy.margin_permille)
            margin = policy.margin_permille
            permit = Permit(scales, leaf, licence, window_gpu_ms=GPUS * window, margin_permille=margin)
            found.append((side, permit))
    return found


def same_victims(cell: Living, history: books.History) -> None:
    """Of every claim that finds no room: who leaves for it."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    for pool in world.fleet.pools():
        here = slow.tenants(world, policy, pool, cell.now_ms)
        room, seen = Room(world, pool, cell.now_ms), occupancy(world, policy, pool, cell.now_ms)
        hosts = slow.open_hosts(world, pool, cell.now_ms)
        known: dict[tuple[object, ...], dict[tuple[str, ...], slow.Cost]] = {}
        for side, permit in _sides(cell, history, pool):
            able = [tenant for tenant in here if slow.is_evictable(side, tenant)]
            for shape in SHAPES:
                key = (shape, *able)
                if key not in known:
                    known[key] = slow.plans(world, hosts, shape.hosts, shape.gpus_per_host, able)
                if all(jobs for _, jobs, *_ in known[key].values()):
                    _same_plan(cell, shape, able, plan_now(seen, room, shape, permit), known[key])


def _same_plan(
    cell: Living, shape: Shape, able: list[slow.Tenant], plan: Plan | None, options: dict[tuple[str, ...], slow.Cost]
) -> None:
    """On one host exactly the cheapest set. A gang's plan suffices and spares whom it can; it is the cheapest
    within a block where nobody stands on two hosts.
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
        assert slow.cost(victims)[:2] == loss[:2]


def same_calendar(cell: Living, history: books.History) -> None:
    """The earliest provable start of every claim, for promises and for people who ask."""
    world, policy = cell.world, cell.world.policy
    assert policy is not None
    for pool in world.fleet.pools():
        here = slow.tenants(world, policy, pool, cell.now_ms)
        room, seen = Room(world, pool, cell.now_ms), occupancy(world, policy, pool, cell.now_ms)
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
                proof = soonest(seen, room, shape, permit, "job-nobody", is_promise=is_all)
                assert (proof.start_ms if proof is not None else None) == known[key]
                if proof is not None:
                    assert set(proof.hosts) <= set(hosts) and len(proof.hosts) == shape.hosts


@pytest.mark.parametrize("count", LIVES)
def test_standings_are_what_adding_up_every_piece_gives(count: int) -> None:
    compare(same_standings, count)


@pytest.mark.parametrize("count", LIVES)
def test_who_is_next_is_who_comes_first_when_all_are_ranked_again(count: int) -> None:
    compare(same_picks, count)


@pytest.mark.parametrize("count", LIVES)
def test_victims_are_the_cheapest_of_all_sets_that_would_do(count: int) -> None:
    compare(same_victims, count)


@pytest.mark.parametrize("count", LIVES)
def test_the_calendar_finds_the_earliest_of_all_sets_of_hosts(count: int) -> None:
    compare(same_calendar, count)


_CHANGES = st.lists(st.tuples(st.integers(0, 900), st.integers(-3, 5)), min_size=1, max_size=6)


@pytest.mark.parametrize("count", LIVES)
def test_a_faded_integral_is_the_sum_over_every_millisecond(count: int) -> None:
    """Half-lives of a few steps, so that the steps are a few milliseconds long, and some weights are gone."""

    def law(drawn: tuple[list[tuple[int, int]], int, int, int]) -> None:
        changes, half_life_ms, lookback_ms, now_ms = drawn
        meter, values = Meter(), [0] * 1_000
        for at_ms, delta in sorted(changes):
            meter.add(at_ms, delta, forget_before_ms=-1)
            values[at_ms:] = [value + delta for value in values[at_ms:]]
        policy = Policy(half_life_ms=half_life_ms, lookback_ms=lookback_ms)
        pieces = [(at_ms, at_ms + 1, value) for at_ms, value in enumerate(values)]
        times = sorted({0, now_ms, *(at_ms for at_ms, _ in changes)})
        for from_ms, to_ms in pairwise(times):
            part = [piece for piece in pieces if from_ms <= piece[0] < to_ms]
            assert Lookback(policy, now_ms).integral(meter, from_ms, to_ms) == books.faded(policy, now_ms, part)

    halves = st.sampled_from((0, 1, 64, 128, 640, 10_000))
    drawn = st.tuples(_CHANGES, halves, st.integers(1, 1_200), st.integers(0, 999))
    examine(law, drawn, count)
