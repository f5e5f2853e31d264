from pathlib import Path

import pytest

from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Outcome, RecordedJob
from fairlease.trace.table import SHOWN_PROBLEMS, TraceWrong

DATA = Path(__file__).parents[1] / "data"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status\n"


def _file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _sentences(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(TraceWrong) as wrong:
        read_trace(_file(tmp_path, text), 160)
    return str(wrong.value).split("\n")


def _helios(**cells: str) -> str:
    row = {
        "job_id": "7",
        "user": "u1",
        "tenant": "vcA",
        "class": "",
        "submit_time": "5000000",
        "num_chips": "8",
        "chip_type": "",
        "num_nodes": "1",
        "duration_s": "60.0",
        "walltime_limit_s": "90.0",
        "final_status": "COMPLETED",
    }
    return ",".join((row | cells).values()) + "\n"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param("2017-10-17 00:01:55,x,1,75.0,a", ["column duration: 'x' is not a number"], id="no number"),
        pytest.param("2017-10-17 00:01:55,nan,1,75.0,a", ["column duration: 'nan' is not a number"], id="nan"),
        pytest.param("2017-10-17 00:01:55,1e3,1,75.0,a", ["column duration: '1e3' is not a number"], id="exponent"),
        pytest.param("2017-10-17 00:01:55,-5,1,0,a", ["column duration: '-5' is negative"], id="negative time"),
        pytest.param(
            "2017-10-17 00:01:55,75000000,1,75000000,a",
            ["column duration: '75000000' is more than a year of seconds: is it in milliseconds?"],
            id="milliseconds for seconds",
        ),
        pytest.param(
            "2017-10-17 00:01:55,75,1.5,75,a", ["column num_gpus: '1.5' is not a whole number"], id="half a GPU"
        ),
        pytest.param("2017-10-17 00:01:55,75,,75,a", ["column num_gpus: is not a whole number"], id="no GPUs said"),
        pytest.param("2017-10-17 00:01:55,75,-1,75,a", ["column num_gpus: '-1' is negative"], id="negative GPUs"),
        pytest.param(
            "2017-10-17 00:01:55,75,2,75,a", ["column gpu_time: '75' is not duration x num_gpus = 150"], id="torn row"
        ),
        pytest.param(
            "17/10/2017 00:01,75,1,75,a",
            ["column timestamp: '17/10/2017 00:01' is not a date and time such as 2017-10-17 00:01:55"],
            id="another clock",
        ),
        pytest.param(
            "1017-10-17 00:01:55,75,1,75,a",
            ["column timestamp: '1017-10-17 00:01:55' is not a local date and time between 1990 and 2100"],
            id="another millennium",
        ),
        pytest.param("2017-10-17 00:01:55,75,1,75, ", ["column cluster: ' ' is empty"], id="no team"),
        pytest.param("2017-10-17 00:01:55,75,1,75", ["has 4 cells, the header has 5"], id="too few cells"),
        pytest.param("2017-10-17 00:01:55,75,1,75,a,b", ["has 6 cells, the header has 5"], id="too many cells"),
        pytest.param(
            "x,y,1,75,a", ["is not a date and time", "column duration: 'y' is not a number"], id="two at once"
        ),
    ],
)
def test_a_bad_philly_row_is_told_with_its_line_and_column(tmp_path: Path, cells: str, expected: list[str]) -> None:
    text = PHILLY + "2017-10-17 00:00:00,1,1,1,a\n\n" + cells + "\n"
    found = _sentences(tmp_path, text)
    assert all(sentence.startswith("line 4") for sentence in found)
    for part in expected:
        assert any(part in sentence for sentence in found), (part, found)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param({"job_id": "x1"}, "column job_id: 'x1' is not a whole number", id="id"),
        pytest.param({"submit_time": "-1"}, "column submit_time: '-1' is negative", id="negative time"),
        pytest.param({"submit_time": "5835"}, "column submit_time: '5835' is no whole millisecond", id="seconds"),
        pytest.param({"submit_time": "9" * 16}, "column submit_time: '9999999999999999' is above", id="nanoseconds"),
        pytest.param({"num_chips": "8.0"}, "column num_chips: '8.0' is not a whole number", id="chips"),
        pytest.param({"num_nodes": ""}, "column num_nodes: is not a whole number", id="nodes"),
        pytest.param({"duration_s": "-0.5"}, "column duration_s: '-0.5' is negative", id="negative duration"),
        pytest.param({"duration_s": "inf"}, "column duration_s: 'inf' is not a number", id="endless"),
        pytest.param({"walltime_limit_s": ""}, "column walltime_limit_s: is not a number", id="no limit"),
        pytest.param({"final_status": "CANCELLED"}, "is none of COMPLETED, FAILED, NODE_FAIL, CANCELED", id="status"),
        pytest.param({"user": ""}, "column user: is empty", id="nobody"),
        pytest.param({"tenant": ""}, "column tenant: is empty", id="no team"),
    ],
)
def test_a_bad_helios_row_is_told_with_its_line_and_column(
    tmp_path: Path, cells: dict[str, str], expected: str
) -> None:
    found = _sentences(tmp_path, "# a comment\n" + HELIOS + _helios(job_id="1") + _helios(**cells))
    assert [sentence[:6] for sentence in found] == ["line 4"]
    assert expected in found[0]


def test_an_id_that_stands_twice_is_told_with_both_lines(tmp_path: Path) -> None:
    text = HELIOS + _helios() + _helios(job_id="8") + _helios(submit_time="6000000")
    assert _sentences(tmp_path, text) == ["line 4, column job_id: '7' stands in line 2 already"]


def test_milliseconds_where_microseconds_belong_are_told_by_what_they_would_mean(tmp_path: Path) -> None:
    rows = (DATA / "tiny_helios_200.csv").read_text(encoding="utf-8").splitlines()
    text = "\n".join(rows[:9]) + "\n"
    for row in rows[9:]:
        cells = row.split(",")
        cells[4] = str(int(cells[4]) // 1_000)
        text += ",".join(cells) + "\n"
    (found,) = _sentences(tmp_path, text)
    assert found.startswith("line 10, column submit_time: read as microseconds, the arrivals ask for 1")
    assert found.endswith("times the cluster: is submit_time in milliseconds?")


def test_a_burst_of_long_jobs_in_whole_seconds_is_plausible(tmp_path: Path) -> None:
    burst = "".join(_helios(job_id=str(n), submit_time=f"{5 + n // 10}000000", duration_s="86400") for n in range(20))
    assert len(read_trace(_file(tmp_path, HELIOS + burst), 8).jobs) == 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "is no header of a known trace", id="an empty file"),
        pytest.param("a,b\n1,2\n", "'a,b' is no header of a known trace", id="another table"),
        pytest.param(PHILLY, "is the end, and no job came before it", id="a header alone"),
        pytest.param("timestamp,duration,num_gpus,cluster\n", "column gpu_time: is missing", id="a missing column"),
        pytest.param(
            "job_id,submit_time,num_chips,duration_s\n", "column walltime_limit_s: is missing", id="several missing"
        ),
        pytest.param(PHILLY.replace("\n", ",duration\n"), "column duration: stands there twice", id="a column twice"),
        pytest.param(
            b"\x1f\x8b\x08\x00", "is not UTF-8 text: traces are plain CSV, or packed as .gz", id="a packed file"
        ),
        pytest.param(PHILLY + "\0,1,1,1,a\n", "line 2", id="a byte that is no text"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert any(expected in sentence for sentence in _sentences(tmp_path, text))


def test_many_problems_are_counted_and_the_first_are_told(tmp_path: Path) -> None:
    found = _sentences(tmp_path, PHILLY + "x,1,1,1,a\n" * 50)
    assert len(found) == SHOWN_PROBLEMS + 1
    assert found[-1] == "and 30 more"


def test_rows_of_one_instant_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = ("2017-10-17 00:00:09,9,1,9,a", "2017-10-17 00:00:01,1,2,2,b", "2017-10-17 00:00:09,8,1,8,c")
    recorded = read_trace(_file(tmp_path, PHILLY + "\n".join(rows)), 160)
    assert [(job.request_id, job.arrive_ms) for job in recorded.jobs] == [
        ("philly-2", 0),
        ("philly-1", 8_000),
        ("philly-3", 8_000),
    ]
    assert recorded.jobs[0] == RecordedJob(
        line=3,
        request_id="philly-2",
        team="b",
        user="",
        gpus=2,
        arrive_ms=0,
        duration_ms=1_000,
        limit_ms=1_000,
        outcome=Outcome.SUCCEEDED,
    )


def test_rows_without_a_gpu_are_counted_not_dropped_in_silence(tmp_path: Path) -> None:
    recorded = read_trace(_file(tmp_path, HELIOS + _helios(num_chips="0") + _helios(job_id="8")), 160)
    assert (len(recorded.jobs), recorded.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("name", "count", "gpus", "last_ms"),
    [("tiny_philly_200.csv", 200, 231, 6_895_000), ("tiny_helios_200.csv", 200, 4_040, 554_065_000)],
)
def test_the_real_traces_are_read_whole(name: str, count: int, gpus: int, last_ms: int) -> None:
    recorded = read_trace(DATA / name, 176)
    assert (len(recorded.jobs), sum(job.gpus for job in recorded.jobs)) == (count, gpus)
    assert recorded.jobs[-1].arrive_ms == last_ms
    assert recorded.left_out == 0


def test_every_outcome_of_helios_is_known() -> None:
    outcomes = [job.outcome for job in read_trace(DATA / "tiny_helios_200.csv", 176).jobs]
    assert {outcome: outcomes.count(outcome) for outcome in Outcome} == {
        Outcome.SUCCEEDED: 82,
        Outcome.FAILED: 59,
        Outcome.CANCELLED: 59,
    }
