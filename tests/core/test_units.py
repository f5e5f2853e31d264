"""Lengths and memory as people write them."""

import pytest

from fairlease_schemas.units import DAY_MS, MAX_LENGTH_MS, format_length, parse_length_ms, parse_memory_mib


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("0s", 0),
        ("0ms", 0),
        ("1ms", 1),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("7d", 7 * DAY_MS),
        ("1d2h3m4s5ms", DAY_MS + 7_384_005),
        ("007s", 7_000),
        ("366d", MAX_LENGTH_MS),
    ],
)
def test_a_length_is_read_in_milliseconds(text: str, length_ms: int) -> None:
    assert parse_length_ms(text) == length_ms


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("30", id="a bare number"),
        pytest.param("30 m", id="a space"),
        pytest.param("-30m", id="a sign"),
        pytest.param("1.5h", id="a fraction"),
        pytest.param("30min", id="an unknown unit"),
        pytest.param("30M", id="a capital unit"),
        pytest.param("30m1h", id="units out of order"),
        pytest.param("30m30m", id="a unit twice"),
        pytest.param("5ms1s", id="milliseconds before seconds"),
        pytest.param("366d1ms", id="a millisecond too long"),
        pytest.param("9999999999999d", id="more digits than a number has"),
        pytest.param("٣m", id="digits of another script"),
        pytest.param("1h\n", id="a line end"),
    ],
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"length of time|out of order|longer than"):
        parse_length_ms(text)


@pytest.mark.parametrize("length_ms", [0, 1, 999, 1_000, 61_000, 5_400_000, DAY_MS - 1, DAY_MS, MAX_LENGTH_MS])
def test_what_is_written_is_read_back(length_ms: int) -> None:
    assert parse_length_ms(format_length(length_ms)) == length_ms


@pytest.mark.parametrize(
    ("length_ms", "text"), [(0, "0s"), (5_400_000, "1h30m"), (-90_000, "-1m30s"), (1, "1ms"), (DAY_MS, "1d")]
)
def test_a_length_is_written_shortest(length_ms: int, text: str) -> None:
    assert format_length(length_ms) == text


@pytest.mark.parametrize(("text", "mib"), [("512Mi", 512), ("64Gi", 65_536), ("1Ti", 1_048_576), ("0Mi", 0)])
def test_memory_is_read_in_mebibytes(text: str, mib: int) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "64", "64GB", "64gi", "1.5Gi", "-1Gi", "1Gi1Mi", "64 Gi", "1Pi"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="amount of memory"):
        parse_memory_mib(text)
