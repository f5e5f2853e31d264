import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlease.core.metrics.quantile import Spread, mean, quantile, spread


@pytest.mark.parametrize(
    ("values", "permille", "expected"),
    [
        pytest.param([7], 500, 7, id="one value is every quantile"),
        pytest.param([7], 1, 7, id="also the lowest"),
        pytest.param([1, 2], 500, 1, id="the median of two is the lower, never the middle"),
        pytest.param([1, 2], 501, 2, id="just above the half it is the upper"),
        pytest.param([1, 2, 3], 500, 2, id="the median of three is the middle one"),
        pytest.param(list(range(1, 11)), 900, 9, id="p90 of ten is the ninth"),
        pytest.param(list(range(1, 11)), 990, 10, id="p99 of ten is the largest"),
        pytest.param(list(range(1, 101)), 990, 99, id="p99 of a hundred is the 99th"),
        pytest.param(list(range(1, 101)), 1000, 100, id="p100 is the largest"),
        pytest.param([], 500, None, id="no values have no quantile"),
    ],
)
def test_a_quantile_is_the_ceiling_of_pn_th_smallest(values: list[int], permille: int, expected: int | None) -> None:
    assert quantile(values, permille) == expected


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1), st.integers(1, 1000))
def test_a_quantile_follows_its_definition_exactly(values: list[int], permille: int) -> None:
    ordered = sorted(values)
    assert quantile(ordered, permille) == ordered[math.ceil(Fraction(permille, 1000) * len(ordered)) - 1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], None, id="no values have no mean"),
        pytest.param([1, 2], 1, id="a mean is rounded down"),
        pytest.param([10, 20, 30], 20, id="an exact mean is exact"),
    ],
)
def test_a_mean_is_a_whole_number(values: list[int], expected: int | None) -> None:
    assert mean(values) == expected


def test_a_spread_does_not_ask_for_an_order() -> None:
    assert spread([30, 10, 20]) == Spread(count=3, p50=20, p90=30, p99=30, mean=20)
    assert spread([]) == Spread(count=0, p50=None, p90=None, p99=None, mean=None)
