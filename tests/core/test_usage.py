"""Exact integrals, beside the slow model: the sum of value times length, millisecond by millisecond."""

import random

import pytest

from fairlease.core.fairshare.usage import Meter

NEVER = -1


def metered(*steps: tuple[int, int], forget_before_ms: int = NEVER) -> Meter:
    meter = Meter()
    for at_ms, delta in steps:
        meter.add(at_ms, delta, forget_before_ms=forget_before_ms)
    return meter


def naive(steps: list[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    return sum(sum(delta for at_ms, delta in steps if at_ms <= now) for now in range(from_ms, to_ms))


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "expected"),
    [
        pytest.param(0, 10, 0, id="before the first step"),
        pytest.param(5, 15, 10, id="across the first step"),
        pytest.param(10, 20, 20, id="exactly the first piece"),
        pytest.param(20, 30, 50, id="exactly the second piece"),
        pytest.param(15, 25, 35, id="across a step"),
        pytest.param(30, 40, 0, id="a piece of nothing"),
        pytest.param(0, 1_000, 70, id="everything"),
        pytest.param(1_000, 2_000, 0, id="after the last step"),
        pytest.param(20, 20, 0, id="an empty interval"),
        pytest.param(25, 15, 0, id="an interval backwards"),
    ],
)
def test_an_integral_is_exact_at_every_edge(from_ms: int, to_ms: int, expected: int) -> None:
    # rule: 2.4 2.2
    assert metered((10, 2), (20, 3), (30, -5)).integral(from_ms, to_ms) == expected


def test_nothing_was_ever_measured() -> None:
    assert (Meter().value, Meter().integral(0, 100)) == (0, 0)


def test_steps_at_one_instant_are_one_step() -> None:
    meter = metered((10, 2), (10, 3), (20, 1), (20, -1))
    assert (meter.times_ms, meter.values) == ([10, 20], [5, 5])
    assert meter.integral(10, 30) == 100


def test_the_value_is_that_after_the_last_step() -> None:
    assert metered((10, 2), (20, 3)).value == 5


@pytest.mark.parametrize("seed", range(20))
def test_any_steps_integrate_as_the_slow_model_does(seed: int) -> None:
    # rule: 2.4 2.2
    chance = random.Random(seed)
    at_ms, steps = 0, []
    for _ in range(40):
        at_ms += chance.choice((0, 1, 3, 10))
        steps.append((at_ms, chance.randint(-5, 9)))
    meter = metered(*steps)
    for _ in range(30):
        from_ms, to_ms = chance.randint(-5, at_ms + 5), chance.randint(-5, at_ms + 5)
        assert meter.integral(from_ms, to_ms) == naive(steps, from_ms, to_ms)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_forgotten_changes_no_integral_that_may_be_asked_for(seed: int) -> None:
    chance = random.Random(seed)
    whole, short = Meter(), Meter()
    at_ms, remembered_ms = 0, 500
    for _ in range(2_000):
        at_ms += chance.randint(0, 20)
        delta = chance.randint(-5, 9)
        whole.add(at_ms, delta, forget_before_ms=NEVER)
        short.add(at_ms, delta, forget_before_ms=at_ms - remembered_ms)
        from_ms = at_ms - chance.randint(0, remembered_ms)
        assert short.integral(from_ms, at_ms + 7) == whole.integral(from_ms, at_ms + 7)
    assert len(short.times_ms) < 200


def test_the_step_that_reaches_into_the_remembered_past_is_kept() -> None:
    meter = metered((0, 7), *((100 + n, 0) for n in range(200)), forget_before_ms=50)
    assert meter.integral(50, 60) == 70
