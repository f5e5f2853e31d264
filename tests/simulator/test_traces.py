"""Recorded workloads are read as they are, or not at all."""

import gzip
from pathlib import Path

import pytest

from fairlease.simulator.traces import Ending, Rule, Trace, TraceJob, TraceWrong, read_trace
from fairlease.simulator.traces.cells import SHOWN_PROBLEMS
from fairlease.simulator.traces.row import split
from tests.simulator import naive_sim

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,tenant,submit_time,num_chips,num_nodes,duration_s,final_status\n"
MURI = "job_id,num_gpu,submit_time,duration,interval\n"


def _read(tmp_path: Path, text: str | bytes, hosts: int = 20) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path, hosts, 8)


def _wrong(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(TraceWrong) as wrong:
        _read(tmp_path, text)
    return str(wrong.value).split("\n")


def _rules(trace: Trace) -> dict[str, int]:
    return {rule.rule: rule.count for rule in trace.rules}


def test_philly_whole_has_the_counts_of_its_readme() -> None:
    trace = read_trace(DATA / "philly_jobs_82k.csv.gz", 96, 8)
    assert len(trace.jobs) == 82_247
    assert len({job.team for job in trace.jobs}) == 15
    assert sum(job.duration_ms * job.gpus for job in trace.jobs) // 3_600_000 == 978_078
    assert round((trace.jobs[-1].submit_ms - trace.jobs[0].submit_ms) / 8_640_000) == 1_089
    assert _rules(trace) == {
        "submission is a local wall clock, read without zones or summer time": 82_247,
        "the trace has no users": 82_247,
        "the trace has no outcomes: every job succeeds": 82_247,
        "rows earlier than the row before them are sorted into their place, stably": 44_878,
        "jobs above one host are gangs of whole hosts": 289,
        "gangs are rounded up to whole hosts": 7,
    }


def test_philly_is_sorted_stably_as_a_reader_that_shares_nothing_sorts_it() -> None:
    trace = read_trace(DATA / "philly_jobs_82k.csv.gz", 96, 8)
    plain = naive_sim.philly(DATA / "philly_jobs_82k.csv.gz", "", 100_000)
    assert [(job.submit_ms, job.duration_ms, job.gpus) for job in trace.jobs] == [job[1:] for job in plain]


def test_helios_has_users_and_real_ends() -> None:
    trace = read_trace(DATA / "tiny_helios_200.csv", 22, 8)
    assert len(trace.jobs) == 200
    assert trace.jobs[0] == TraceJob(
        row=10,
        name="helios-765563",
        submit_ms=0,
        duration_ms=24_000,
        gpus=128,
        hosts=16,
        gpus_per_host=8,
        team="vcvGl",
        user="uH3om",
        end=Ending.CANCELLED,
    )
    assert {job.end for job in trace.jobs} == {Ending.SUCCEEDED, Ending.CANCELLED, Ending.FAILED}
    assert round(trace.jobs[-1].submit_ms / 8_640_000) == 64


def test_muri_is_in_milliseconds() -> None:
    trace = read_trace(DATA / "muri_trace3.csv", 8, 8)
    plain = naive_sim.muri(DATA / "muri_trace3.csv", 1000)
    assert [(job.submit_ms, job.duration_ms, job.gpus) for job in trace.jobs] == [job[1:] for job in plain]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(1, (1, 1)), (8, (1, 8)), (9, (2, 8)), (12, (2, 8)), (24, (3, 8)), (128, (16, 8))],
)
def test_jobs_above_a_host_take_whole_hosts(gpus: int, expected: tuple[int, int]) -> None:
    assert split(gpus, 8) == expected


def test_a_packed_file_is_the_same_trace_under_another_digest(tmp_path: Path) -> None:
    text = PHILLY + "2017-10-17 00:01:55,75.5,12,906,a\r\n"
    plain, packed = _read(tmp_path, text), _read(tmp_path, gzip.compress(text.encode()))
    assert plain.jobs == packed.jobs
    assert [(job.duration_ms, job.hosts, job.gpus_per_host) for job in plain.jobs] == [(75_500, 2, 8)]
    assert plain.sha256 != packed.sha256


def test_rows_without_a_gpu_and_jobs_of_no_length_are_counted(tmp_path: Path) -> None:
    row = "2017-10-17 00:01:55,{},{},0,a\n"
    trace = _read(tmp_path, PHILLY + row.format(75, 0) + row.format(0, 1))
    assert [job.duration_ms for job in trace.jobs] == [1]
    assert trace.rules[-2:] == (
        Rule(rule="rows without a GPU are left out", count=1),
        Rule(rule="jobs of no length run for one millisecond", count=1),
    )


ROW = "2017-10-17 00:01:55"
H_ROW = "7,u,t,5000000,8,1,60,COMPLETED"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(PHILLY + f"{ROW},x,1,75,a", "row 2, column duration: 'x' is not a number", id="no number"),
        pytest.param(PHILLY + f"{ROW},nan,1,75,a", "column duration: 'nan' is not a number", id="nan"),
        pytest.param(PHILLY + f"{ROW},-5,1,0,a", "column duration: '-5' is negative: correct", id="negative time"),
        pytest.param(PHILLY + f"{ROW},75,-1,75,a", "column num_gpus: '-1' is negative", id="negative GPUs"),
        pytest.param(PHILLY + f"{ROW},75,1.5,75,a", "column num_gpus: '1.5' is not a whole number", id="half a GPU"),
        pytest.param(PHILLY + f"{ROW},75,9999999,75,a", "column num_gpus: '9999999' is above 1000000", id="too many"),
        pytest.param(PHILLY + f"{ROW},75,2,75,a", "'75' is not duration x num_gpus = 150", id="torn row"),
        pytest.param(PHILLY + f"{ROW},75000000,1,75000000,a", "is it in milliseconds?", id="milliseconds"),
        pytest.param(PHILLY + "2017-10-17,75,1,75,a", "'2017-10-17' is not a date and time", id="a day alone"),
        pytest.param(PHILLY + f"{ROW}+02:00,75,1,75,a", "is not a date and time", id="a zone"),
        pytest.param(PHILLY + "1017-10-17 00:01:55,75,1,75,a", "is not between 1990 and 2100", id="millennium"),
        pytest.param(PHILLY + f"{ROW},75,1,75, ", "row 2, column cluster: is empty: write a name there", id="no team"),
        pytest.param(PHILLY + f"{ROW},75,1,75,a\x1b[2J", "is no name: write at most 128", id="a team that draws"),
        pytest.param(PHILLY + f"{ROW},75,1,75", "has 4 cells, the header has 5: correct", id="too few cells"),
        pytest.param(PHILLY + f'{ROW},75,1,75,"a\n{ROW},75,1,75,b', "row 2: ", id="a quote left open"),
        pytest.param("timestamp,duration\n", "row 1, column cluster: is missing: a philly trace has it", id="missing"),
        pytest.param(PHILLY[:-1] + ",cluster\n", "column cluster: stands there twice: keep one", id="twice"),
        pytest.param("a,b\n1,2\n", "row 1: 'a,b' is no header of a known trace (philly: ", id="another table"),
        pytest.param("", "row 1: is no header of a known trace", id="an empty file"),
        pytest.param(PHILLY, "without a job to run: name another (it has no rows)", id="a header alone"),
        pytest.param(PHILLY + f"{ROW},75,161,12075,a", "'161' does not fit on 20 x 8: name a larger", id="too large"),
        pytest.param(b"\xff\xfe", "row 1: is not UTF-8 text", id="no text"),
        pytest.param(b"\x1f\x8b\x08\x00", "is packed and cannot be unpacked", id="half a packed file"),
        pytest.param(HELIOS + H_ROW.replace("5000000", "5001000"), "is it in milliseconds or", id="helios in ms"),
        pytest.param(HELIOS + H_ROW.replace("COMPLETED", "DONE"), "'DONE' is none of COMPLETED", id="no such status"),
        pytest.param(f"# c\n{HELIOS}{H_ROW}\n{H_ROW}", "row 4, column job_id: '7' stands in row 3 already", id="id"),
        pytest.param(MURI + "1,4,5,60000,0", "column submit_time: '5' is no whole second in milli", id="muri in s"),
        pytest.param(MURI + "1,4,0,60000000000,0", "is it in microseconds?", id="muri in microseconds"),
        pytest.param(b"{}\n", "row 1: '{}' is no record of a log", id="a line that is no record"),
    ],
)
def test_what_is_wrong_is_told_with_file_row_column_value_and_way_out(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    told = _wrong(tmp_path, text)
    assert expected in told[0]
    assert all(line.startswith("trace.csv: row ") for line in told)


def test_all_problems_of_a_file_are_gathered_and_the_first_are_shown(tmp_path: Path) -> None:
    told = _wrong(tmp_path, PHILLY + f"{ROW},x,y,0,a\n" * 30)
    assert len(told) == SHOWN_PROBLEMS + 1
    assert told[0].startswith("trace.csv: row 2, column duration: 'x'")
    assert told[-1] == "trace.csv: and 40 more"


def test_a_packed_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlease.simulator.traces.reading.MAX_BYTES", 10_000)
    assert _wrong(tmp_path, gzip.compress(b"\n" * 1_000_000)) == [
        "trace.csv: row 1: begins a file of more than 10000 bytes: cut it"
    ]


def test_a_file_that_is_not_there_is_an_error_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.csv", 1, 8)


GOLDEN = TESTS / "golden/gangs-begin-together.jsonl"


def test_our_own_log_tells_what_was_asked_for_and_how_long_it_ran() -> None:
    trace = read_trace(GOLDEN, 100, 8)
    assert trace.format == "log"
    assert trace.jobs == (
        TraceJob(
            row=13,
            name="job-2pw25kbuu4hosbsq63db",
            submit_ms=0,
            duration_ms=480_000,
            gpus=16,
            hosts=2,
            gpus_per_host=8,
            team="a",
            user="ann",
            end=Ending.SUCCEEDED,
        ),
    )
    assert _rules(trace) == {
        "jobs that were not over when the log ends are left out": 1,
        "jobs that ended without having run are left out": 2,
        "a duration is the time in which all parts of the job's attempts ran, also what was lost": 1,
    }


def test_every_job_of_every_golden_log_is_read_or_counted() -> None:
    for path in sorted(GOLDEN.parent.glob("*.jsonl")):
        admitted = path.read_text().count('"type":"job-admitted"')
        try:
            trace = read_trace(path, 1000, 8)
        except TraceWrong as wrong:
            assert "without a job to run" in str(wrong)  # noqa: PT017 - which logs are empty is not the point
            continue
        left_out = sum(rule.count for rule in trace.rules if rule.rule.endswith("left out"))
        assert len(trace.jobs) + left_out == admitted, path.name


def test_a_log_that_was_cut_or_joined_is_refused(tmp_path: Path) -> None:
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    assert "is not begun by an earlier record: the log was cut" in _wrong(tmp_path, b"".join(lines[14:]))[0]
    assert "is admitted by an earlier record: two logs" in _wrong(tmp_path, b"".join(lines + lines))[0]
