"""Each cell of a trace that cannot be what it says is told with file, row, column, value and the way out."""

import random
from pathlib import Path

import pytest

from tests.trace.test_reading import CLOCK, DATA, HELIOS, MURI, PHILLY, helios, muri, read, wrong

MORE_THAN_A_YEAR = str(367 * 86_400)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param(f"{CLOCK},x,1,75,a", "column duration: 'x' is not a number: write digits", id="no number"),
        pytest.param(f"{CLOCK},nan,1,75,a", "column duration: 'nan' is not a number", id="nan"),
        pytest.param(f"{CLOCK},inf,1,75,a", "column duration: 'inf' is not a number", id="endless"),
        pytest.param(f"{CLOCK},1e3,1,75,a", "column duration: '1e3' is not a number", id="exponent"),
        pytest.param(f"{CLOCK},7٣,1,75,a", "column duration: '7٣' is not a number", id="digits of another script"),
        pytest.param(f"{CLOCK},-5,1,0,a", "column duration: '-5' is negative: correct", id="negative time"),
        pytest.param(f"{CLOCK},{'9' * 19},1,75,a", "is not a number", id="huge"),
        pytest.param(f"{CLOCK},75000000,1,75000000,a", "is it in milliseconds? divide", id="milliseconds"),
        pytest.param(f"{CLOCK},75,-1,75,a", "column num_gpus: '-1' is negative", id="negative GPUs"),
        pytest.param(f"{CLOCK},75,1.5,75,a", "column num_gpus: '1.5' is not a whole number", id="half a GPU"),
        pytest.param(f"{CLOCK},75,,75,a", "column num_gpus: is not a whole number", id="no GPUs said"),
        pytest.param(f"{CLOCK},75,9999999,75,a", "column num_gpus: '9999999' is above 1000000", id="too many"),
        pytest.param(f"{CLOCK},75,2,75,a", "gpu_time: '75' is not duration x num_gpus = 150", id="torn row"),
        pytest.param("17/10/2017 00:01,75,1,75,a", "is not a date and time: write it as in 2017", id="another clock"),
        pytest.param("2017-10-17,75,1,75,a", "'2017-10-17' is not a date and time", id="a day alone"),
        pytest.param("2017-02-30 00:00:00,75,1,75,a", "'2017-02-30 00:00:00' is not a date", id="no such day"),
        pytest.param(f"{CLOCK}+02:00,75,1,75,a", "is not a date and time", id="a zone"),
        pytest.param("1508198515,75,1,75,a", "is not a date and time", id="seconds since 1970"),
        pytest.param("1017-10-17 00:01:55,75,1,75,a", "is not between 1990 and 2100", id="another millennium"),
        pytest.param(f"{CLOCK},75,1,75, ", "column cluster: is empty: write a name there", id="no team"),
        pytest.param(f"{CLOCK},75,1,75,a\x1b[2J", "is no name: write at most 128", id="a team that draws"),
        pytest.param(f"{CLOCK},75,1,75,{'a' * 129}", "is no name: write at most 128", id="a team without an end"),
        pytest.param(f"{CLOCK},75,1,75", "has 4 cells, the header has 5: correct", id="too few cells"),
        pytest.param(f"{CLOCK},75,1,75,a,b", "has 6 cells, the header has 5", id="too many cells"),
        pytest.param(f'{CLOCK},75,1,75,"a', "row 4: ", id="a quote left open"),
        pytest.param("x,y,1,75,a", "column duration: 'y' is not a number", id="two at once"),
    ],
)
def test_of_philly(tmp_path: Path, cells: str, expected: str) -> None:
    told = wrong(tmp_path, f"{PHILLY}{CLOCK},1,1,1,a\n\n{cells}\n{CLOCK},1,1,1,a\n")
    assert any(expected in line for line in told), told
    assert all(line.startswith("trace.csv: row 4") for line in told)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param({"job_id": "x 1"}, "column job_id: 'x 1' is no id: write 1 to 100", id="an id with a blank"),
        pytest.param({"job_id": ""}, "column job_id: is no id", id="no id"),
        pytest.param({"job_id": "9" * 101}, "is no id", id="an id without an end"),
        pytest.param({"submit_time": "-1"}, "column submit_time: '-1' is negative", id="negative time"),
        pytest.param({"submit_time": "nan"}, "column submit_time: 'nan' is not a whole number", id="nan"),
        pytest.param({"submit_time": "5835"}, "column submit_time: '5835' is no whole second in micro", id="seconds"),
        pytest.param({"submit_time": "5835000"}, "is it in milliseconds or seconds? write micro", id="milliseconds"),
        pytest.param({"submit_time": "9" * 16}, "is above", id="beyond 2100"),
        pytest.param({"submit_time": "9" * 18}, "is it in nanoseconds? divide the column by 1000", id="nanoseconds"),
        pytest.param({"num_chips": "8.0"}, "column num_chips: '8.0' is not a whole number", id="chips"),
        pytest.param({"num_chips": "-8"}, "column num_chips: '-8' is negative", id="negative chips"),
        pytest.param({"num_nodes": ""}, "column num_nodes: is not a whole number", id="nodes"),
        pytest.param({"duration_s": "-0.5"}, "column duration_s: '-0.5' is negative", id="negative duration"),
        pytest.param({"duration_s": "inf"}, "column duration_s: 'inf' is not a number", id="endless"),
        pytest.param({"duration_s": MORE_THAN_A_YEAR}, "is it in milliseconds?", id="a duration in milliseconds"),
        pytest.param({"walltime_limit_s": ""}, "column walltime_limit_s: is not a number", id="no limit"),
        pytest.param({"final_status": "CANCELLED"}, "is none of COMPLETED, FAILED, NODE_FAIL, CANCELED", id="status"),
        pytest.param({"user": ""}, "column user: is empty", id="nobody"),
        pytest.param({"tenant": ""}, "column tenant: is empty", id="no team"),
        pytest.param({"job_id": "1"}, "column job_id: '1' stands in row 3 already: keep one", id="an id twice"),
    ],
)
def test_of_helios(tmp_path: Path, cells: dict[str, str], expected: str) -> None:
    (told,) = wrong(tmp_path, "# a comment\n" + HELIOS + helios(job_id="1") + helios(**cells))
    assert told.startswith("trace.csv: row 4, column ")
    assert expected in told


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param({"job_id": "0"}, "column job_id: '0' stands in row 2 already: keep one", id="an id twice"),
        pytest.param({"num_gpu": ""}, "column num_gpu: is not a whole number", id="no GPUs said"),
        pytest.param({"submit_time": "-5000"}, "column submit_time: '-5000' is negative", id="negative time"),
        pytest.param({"submit_time": "5"}, "'5' is no whole second in milliseconds: is it in seconds?", id="seconds"),
        pytest.param({"duration": "60"}, "column duration: '60' is no whole second in milli", id="a short duration"),
        pytest.param({"duration": "nan"}, "column duration: 'nan' is not a whole number: write digits", id="nan"),
        pytest.param({"duration": "-1000"}, "column duration: '-1000' is negative", id="a negative length"),
        pytest.param({"num_gpu": "9999999"}, "column num_gpu: '9999999' is above 1000000", id="too many"),
        pytest.param({"submit_time": "9" * 19}, "is not a whole number", id="huge"),
        pytest.param({"duration": "60000.0"}, "column duration: '60000.0' is not a whole number", id="a point"),
        pytest.param({"duration": "60000000000"}, "is it in microseconds? divide", id="microseconds"),
    ],
)
def test_of_muri(tmp_path: Path, cells: dict[str, str], expected: str) -> None:
    (told,) = wrong(tmp_path, MURI + muri(job_id="0") + muri(**cells))
    assert told.startswith("trace.csv: row 3, column ")
    assert expected in told


def rewritten(name: str, column: str, change: float) -> str:
    """A real trace with a column of times in another unit, and the product of a philly row with it."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    at = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    columns = lines[at].split(",")
    changed = {columns.index(one) for one in (column, "gpu_time") if one in columns}
    for place in range(at + 1, len(lines)):
        cells = lines[place].split(",")
        for one in changed:
            value = float(cells[one]) * change
            cells[one] = str(round(value)) if column == "submit_time" or "muri" in name else f"{value:.6f}"
        lines[place] = ",".join(cells)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "column", "change", "expected"),
    [
        pytest.param("tiny_philly_200.csv", "duration", 1_000, "is it in milliseconds? divide", id="philly x 1000"),
        pytest.param(
            "tiny_philly_200.csv", "duration", 1e-3, "in a larger unit? multiply the column", id="philly / 1000"
        ),
        pytest.param("tiny_helios_200.csv", "duration_s", 1_000, "milliseconds? divide", id="helios lengths x 1000"),
        pytest.param(
            "tiny_helios_200.csv", "duration_s", 1e-3, "in a larger unit? multiply", id="helios lengths / 1000"
        ),
        pytest.param("tiny_helios_200.csv", "submit_time", 1_000, "is it in nanoseconds? divide", id="helios x 1000"),
        pytest.param(
            "tiny_helios_200.csv", "submit_time", 1e-3, "is no whole second in microseconds", id="helios / 1000"
        ),
        pytest.param(
            "tiny_helios_200.csv", "submit_time", 1e-6, "is it in milliseconds or seconds?", id="helios / 10^6"
        ),
        pytest.param("muri_trace3.csv", "duration", 1_000, "microseconds? divide", id="muri lengths x 1000"),
        pytest.param(
            "muri_trace3.csv", "duration", 1e-3, "is no whole second in milliseconds", id="muri lengths / 1000"
        ),
        pytest.param("muri_trace3.csv", "submit_time", 1_000, "microseconds? divide", id="muri x 1000"),
        pytest.param("muri_trace3.csv", "submit_time", 1e-3, "is it in seconds? multiply the column", id="muri / 1000"),
    ],
)
def test_a_whole_column_in_another_unit(tmp_path: Path, name: str, column: str, change: float, expected: str) -> None:
    told = wrong(tmp_path, rewritten(name, column, change))
    assert all(f"column {column}: " in line or line.endswith(" more") for line in told), told
    assert expected in told[0]


def test_a_slip_that_no_single_row_shows(tmp_path: Path) -> None:
    rows = "".join(f"{CLOCK},{1_000 * n},1,{1_000 * n},a\n" for n in range(20, 30))
    (told,) = wrong(tmp_path, PHILLY + rows)
    assert told.startswith("trace.csv: row 2, column duration: begins 10 values that are all multiples of 1000 seconds")
    assert told.endswith(": is it in milliseconds? divide the column by 1000")


def test_short_jobs_and_long_ones_in_whole_hours_are_no_slip(tmp_path: Path) -> None:
    burst = "".join(helios(job_id=str(n), duration_s=str(1 + n % 2)) for n in range(50))
    assert len(read(tmp_path, HELIOS + burst).jobs) == 50
    hours = "".join(muri(job_id=str(n), duration=str(n * 3_600_000)) for n in range(1, 50))
    assert len(read(tmp_path, MURI + hours).jobs) == 49
    few = "".join(muri(job_id=str(n), duration=str(n * 1_000_000)) for n in range(1, 10))
    assert len(read(tmp_path, MURI + few).jobs) == 9


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_broken_in_a_trace_is_told_or_read_and_never_a_fault_of_ours(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    name = chance.choice(["tiny_philly_200.csv", "tiny_helios_200.csv", "muri_trace3.csv"])
    raw = bytearray((DATA / name).read_bytes()[:4_000])
    for _ in range(chance.randrange(1, 30)):
        at = chance.randrange(len(raw))
        raw[at : at + chance.randrange(3)] = bytes(chance.choices(b'-+0123456789.,"#\r\n\0\xff\xefeEnN ', k=3))
    told = wrong(tmp_path, bytes(raw)) if _is_wrong(tmp_path, bytes(raw)) else []
    assert all(line.startswith("trace.csv: ") for line in told)


def _is_wrong(tmp_path: Path, raw: bytes) -> bool:
    try:
        read(tmp_path, raw)
    except ValueError:
        return True
    return False
