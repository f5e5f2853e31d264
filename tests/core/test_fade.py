"""The lookback and its fade: an integer table, steps on fixed multiples, used and entitled alike (2.8)."""

import random
from itertools import pairwise

import pytest

from fairlease.core.fairshare.fade import SHIFT, STEPS, WEIGHTS, Lookback
from fairlease.core.fairshare.standing import entitled_gpu_ms, standings
from fairlease.core.fairshare.usage import Lumps, Meter
from fairlease_schemas.policy import Policy
from tests.core.bench import cell, whole
from tests.dsl.cell import DAY, HOUR, MINUTE, T0

NEVER = -(10**15)


def metered(*steps: tuple[int, int]) -> Meter:
    meter = Meter()
    for at_ms, delta in steps:
        meter.add(at_ms, delta, forget_before_ms=NEVER)
    return meter


def lookback(now_ms: int, *, lookback_ms: int = 10_000, half_life_ms: int = 64) -> Lookback:
    return Lookback(Policy(lookback_ms=lookback_ms, half_life_ms=half_life_ms), now_ms)


# the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(64))
def test_a_weight_is_two_to_the_minus_k_64ths_rounded_down(k: int) -> None:
    """That is w = floor(2^(32 - k/64)): so w^64 <= 2^(32*64 - k) < (w+1)^64, in whole numbers."""
    # rule: 2.8
    exact = 1 << (SHIFT * STEPS - k)
    assert WEIGHTS[k] ** STEPS <= exact < (WEIGHTS[k] + 1) ** STEPS


@pytest.mark.parametrize(
    ("age_steps", "expected"),
    [
        pytest.param(0, 1 << 32, id="this step: whole"),
        pytest.param(1, 4_248_701_964, id="a step ago"),
        pytest.param(64, 1 << 31, id="a half-life ago: a half"),
        pytest.param(65, 4_248_701_964 >> 1, id="and a step"),
        pytest.param(128, 1 << 30, id="two half-lives: a quarter"),
        pytest.param(32 * 64, 1, id="thirty-two: the last that counts"),
        pytest.param(33 * 64, 0, id="thirty-three: nothing"),
    ],
)
def test_what_a_step_of_that_age_weighs(age_steps: int, expected: int) -> None:
    """2^32 GPUs for a millisecond at the beginning of a step of ten, looked at from the middle of another."""
    # rule: 2.8
    meter = metered((0, 1 << SHIFT), (1, -(1 << SHIFT)))
    back = lookback(age_steps * 10 + 5, half_life_ms=64 * 10, lookback_ms=10**6)
    assert back.integral(meter, 0, 1) == expected


# the integral -----------------------------------------------------------------------------------------


def slow(meter: Meter, from_ms: int, to_ms: int, now_ms: int, step_ms: int, first_ms: int) -> int:
    """Step by step from the first multiple on, whatever has faded."""
    total, at_ms = 0, max(from_ms, first_ms)
    while at_ms < min(to_ms, now_ms):
        until_ms = min((at_ms // step_ms + 1) * step_ms, to_ms, now_ms)
        age = now_ms // step_ms - at_ms // step_ms
        total += meter.integral(at_ms, until_ms) * (WEIGHTS[age % STEPS] >> (age // STEPS)) >> SHIFT
        at_ms = until_ms
    return total


@pytest.mark.parametrize("seed", range(12))
def test_any_steps_fade_as_the_slow_model_does(seed: int) -> None:
    # rule: 2.8
    chance = random.Random(seed)
    half_life_ms = chance.choice((64, 640, 100, 6_400))
    at_ms, steps = 1_000, []
    for _ in range(30):
        at_ms += chance.choice((0, 1, 7, 300))
        steps.append((at_ms, chance.randint(-3, 9) * 10**9))
    meter = metered(*steps)
    now_ms = at_ms + chance.randint(0, 500)
    for _ in range(20):
        from_ms, to_ms = chance.randint(0, now_ms), chance.randint(0, now_ms + 50)
        found = lookback(now_ms, lookback_ms=3_000, half_life_ms=half_life_ms).integral(meter, from_ms, to_ms)
        step_ms = max(1, half_life_ms // STEPS)
        assert found == slow(meter, from_ms, to_ms, now_ms, step_ms, now_ms - 3_000)


def test_steps_lie_on_multiples_since_1970_and_not_on_now() -> None:
    """What weighs less does so at a multiple of the step: a millisecond before it, everything still weighs the same."""
    # rule: 2.8
    meter = metered((0, 10**9))
    half_life_ms = 64 * 100
    found = [lookback(now_ms, half_life_ms=half_life_ms).integral(meter, 0, 100) for now_ms in (199, 200, 299, 300)]
    assert found[0] > found[1] == found[2] > found[3]


def test_without_a_half_life_everything_counts_alike_until_the_lookback_ends() -> None:
    # rule: 2.8
    meter = metered((0, 3))
    back = lookback(20_000, half_life_ms=0)
    assert back.integral(meter, 0, 30_000) == 3 * 10_000


def test_a_very_short_half_life_takes_no_longer_than_its_weights_last() -> None:
    """Seven days in steps of a millisecond: what weighs nothing is not walked through."""
    # rule: 2.8
    now_ms = T0 + 7 * DAY
    meter = metered((T0, 10**9))
    short = lookback(now_ms, lookback_ms=7 * DAY, half_life_ms=1)
    assert short.integral(meter, T0, now_ms) == slow(meter, now_ms - 5_000, now_ms, now_ms, 1, T0)


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(0, 100, id="now"),
        pytest.param(64, 50, id="a half-life ago"),
        pytest.param(640, 0, id="ten half-lives ago"),
    ],
)
def test_surcharges_and_credits_fade_by_the_step_of_their_instant(age: int, expected: int) -> None:
    # rule: 2.8 2.6
    lumps = Lumps()
    lumps.add(1_000, 100, forget_before_ms=NEVER)
    assert lookback(1_000 + age).lumps(lumps) == expected


def test_lumps_of_the_future_and_of_before_the_lookback_do_not_count() -> None:
    # rule: 2.6
    lumps = Lumps()
    for at_ms in (1_000, 1_001, 11_000):
        lumps.add(at_ms, 7, forget_before_ms=NEVER)
    assert lookback(11_000, half_life_ms=0).lumps(lumps) == 14
    assert lookback(11_001, half_life_ms=0).lumps(lumps) == 7


# used and entitled alike --------------------------------------------------------------------------------


@pytest.mark.parametrize("half_life_ms", [0, DAY, 5 * HOUR])
def test_who_always_held_exactly_its_share_stands_at_one(half_life_ms: int) -> None:
    """To the GPU-millisecond without a fade, and to one a step with it: each step is rounded down by itself."""
    # rule: 2.8 2.4
    here = cell(2, half_life_ms=half_life_ms, entitlement_floor_ms=0, rank_period_ms=HOUR)
    for budget in "ab":
        whole(here, f"r-{budget}", budget, min_runtime_ms=15 * MINUTE, timeout_ms=10 * DAY)
    length_ms = 3 * DAY + 17 * HOUR + 123
    steps = length_ms * STEPS // half_life_ms + 2 if half_life_ms else 0
    for node in standings(here.world, "h100", T0 + length_ms):
        assert 0 <= node.entitled_gpu_ms - node.used_gpu_ms <= steps
        assert node.used_gpu_ms > 10**8


def test_what_was_held_long_ago_weighs_less_against_who_holds_now() -> None:
    # rule: 2.8
    spent = {}
    for half_life_ms in (0, DAY):
        here = cell(1, half_life_ms=half_life_ms, rank_period_ms=HOUR)
        first = whole(here, "first", "a", min_runtime_ms=15 * MINUTE)
        here.at(12 * HOUR).gone(first)
        whole(here, "second", "b", min_runtime_ms=15 * MINUTE)
        here.at(24 * HOUR - 1)
        nodes = {n.budget: n for n in standings(here.world, "h100", T0 + 5 * DAY)}
        spent[half_life_ms] = (nodes["a"].used_gpu_ms, nodes["b"].used_gpu_ms)
    assert spent[0][0] == 8 * 12 * HOUR
    assert spent[DAY][0] * 1000 < spent[DAY][1] * 800
    assert spent[DAY][0] < spent[0][0] // 8


@pytest.mark.parametrize("half_life_ms", [0, DAY])
def test_faded_children_still_sum_to_their_parent_across_changes(half_life_ms: int) -> None:
    # rule: 2.8 2.2
    here = cell(3, half_life_ms=half_life_ms).budgets(org=7, org__x=2, org__y=3, org__z=1)
    here.at(2 * DAY).budgets(org__y=5)
    here.at(2 * DAY + 1).hosts(1, gpus=5, first=9)
    here.at(3 * DAY).budgets(a=11)
    policy = here.world.policy
    assert policy is not None
    back = Lookback(policy, T0 + 4 * DAY + 7)
    parts = entitled_gpu_ms(here.world, "h100", back)
    assert parts["x"] + parts["y"] + parts["z"] == parts["org"]
    meter = here.world.fleet.schedulable["h100"]
    pieces = [piece.from_ms for piece in here.world.pieces] + [back.now_ms]
    whole_ms = sum(back.integral(meter, *span) for span in pairwise(pieces))
    assert parts["a"] + parts["b"] + parts["org"] == whole_ms
