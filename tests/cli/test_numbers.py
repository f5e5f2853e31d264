"""How people write the numbers of a policy: what is read, what is shown, and what is told of the rest."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlease.cli import numbers
from fairlease.cli.exits import CONTRACT, CommandError
from fairlease.cli.numbers import judge, number_of, policy_of, written
from fairlease_schemas.policy import DEFAULT_WINDOW_BOUNDS, Policy, WindowBound
from fairlease_schemas.units import HOUR_MS, MINUTE_MS

DEFAULT_BOUNDS = "8:15m-4h/64:15m-8h/*:15m-12h"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        pytest.param("margin_permille", "50", 50, id="a number as text"),
        pytest.param("margin_permille", 50, 50, id="a number of a file"),
        pytest.param("patience_ms", "90s", 90_000, id="a length"),
        pytest.param("patience_ms", "90", 90, id="a length without a unit is milliseconds"),
        pytest.param("patience_ms", "-5", -5, id="below nothing, for the policy to refuse"),
        pytest.param("change_gate", "reported", "reported", id="a word"),
        pytest.param("change_gate", "5", "5", id="a word of digits"),
        pytest.param("window_bounds", DEFAULT_BOUNDS, DEFAULT_WINDOW_BOUNDS, id="bounds of windows"),
        pytest.param(
            "window_bounds",
            [{"up_to_gpus": 8, "shortest_ms": 1, "longest_ms": 2}],
            (WindowBound(up_to_gpus=8, shortest_ms=1, longest_ms=2),),
            id="bounds of a file",
        ),
        pytest.param("return_checks", ["nccl"], ("nccl",), id="names of a file"),
    ],
)
def test_a_number_is_read(name: str, value: object, expected: object) -> None:
    assert number_of(name, value) == expected


@pytest.mark.parametrize(
    ("name", "value", "said", "way_out"),
    [
        pytest.param("marjin", "5", "policy.marjin: there is no such number", "policy show", id="no such number"),
        pytest.param("x" * 999, "5", f"policy.{'x' * 80}: there", "policy show", id="a name without end"),
        pytest.param("margin_permille", "5m", "'5m' is no whole number", "policy show", id="a length of no time"),
        pytest.param("margin_permille", "1_000", "'1_000' is no whole number", "policy show", id="as Python has it"),
        pytest.param("margin_permille", "\u0665", "is no whole number", "policy show", id="digits of another script"),
        pytest.param("margin_permille", "9" * 5_000, "is no whole number", "policy show", id="digits without end"),
        pytest.param("margin_permille", True, "policy.margin_permille: Expected `int`", "policy show", id="a truth"),
        pytest.param("patience_ms", "5 parsecs", "policy.patience_ms: '5 parsecs'", "90s", id="no length"),
        pytest.param("patience_ms", [1], "policy.patience_ms: Expected `int`", "policy show", id="a list"),
        pytest.param("window_bounds", "8:15m", "policy.window_bounds: '8:15m' is no bound", "*:15m-12h", id="half"),
        pytest.param("window_bounds", "*:1-2", "'1' is not a length", "*:15m-12h", id="a bound without units"),
        pytest.param("window_bounds", "all:1m-2m", "'all:1m-2m' is no bound", "*:15m-12h", id="no size"),
        pytest.param("return_checks", "nccl", "policy.return_checks: Expected `array`", "policy show", id="no list"),
    ],
)
def test_what_is_no_number_is_told(name: str, value: object, said: str, way_out: str) -> None:
    with pytest.raises(CommandError) as caught:
        number_of(name, value)
    assert (caught.value.code, said in caught.value.text) == (CONTRACT, True), caught.value.text
    assert way_out in caught.value.way_out


class Ruled(msgspec.Struct):
    """A policy that has a truth among its numbers."""

    is_strict: bool = False


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False)])
def test_a_truth_is_a_word(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    monkeypatch.setattr(numbers, "_FIELDS", {field.name: field for field in msgspec.structs.fields(Ruled)})
    assert number_of("is_strict", text) is expected
    assert written("is_strict", expected) == text
    with pytest.raises(CommandError, match="Expected `bool`"):
        number_of("is_strict", "yes")


BOUNDS = st.lists(
    st.builds(
        WindowBound,
        up_to_gpus=st.one_of(st.integers(1, 4096), st.just(1 << 30)),
        shortest_ms=st.integers(0, HOUR_MS),
        longest_ms=st.integers(0, 9 * HOUR_MS),
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@given(st.integers(-5, 10**11), st.integers(-5, 10**11), BOUNDS)
def test_what_is_shown_is_read_back(number: int, length_ms: int, bounds: tuple[WindowBound, ...]) -> None:
    told: dict[str, Any] = {"margin_permille": number, "patience_ms": length_ms, "window_bounds": bounds}
    for name, value in told.items():
        assert number_of(name, written(name, value)) == value
    as_json = [msgspec.structs.asdict(bound) for bound in bounds]
    assert written("window_bounds", as_json) == written("window_bounds", bounds)


def test_a_policy_says_only_what_is_not_as_the_default() -> None:
    policy = policy_of({"margin_permille": "20", "patience_ms": "10m", "window_bounds": DEFAULT_BOUNDS})
    assert policy == Policy(patience_ms=10 * MINUTE_MS)
    assert msgspec.json.encode(policy) == b'{"patience_ms":600000}'


def test_a_policy_that_no_cell_can_be_run_by_is_told_with_all_its_problems() -> None:
    judge(Policy())
    with pytest.raises(CommandError) as caught:
        judge(Policy(lookback_ms=0, margin_permille=-1), " (this one)")
    assert caught.value.text == "no cell can be run by this policy (this one)"
    assert [one.field for one in caught.value.findings] == ["policy.lookback_ms", "policy.margin_permille"]
