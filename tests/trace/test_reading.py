"""Recorded workloads are read as they are, or not at all."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlease.trace import reading
from fairlease.trace.cells import SHOWN_PROBLEMS, TraceWrong
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Outcome, Recorded, RecordedJob, Rule
from tests.simulator import naive_sim

DATA = Path(__file__).parents[1] / "data"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status\n"
MURI = "job_id,num_gpu,submit_time,duration,interval\n"
CLOCK = "2017-10-17 00:01:55"


def read(tmp_path: Path, text: str | bytes, expected: str = "") -> Recorded:
    path = tmp_path / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path, expected)


def wrong(tmp_path: Path, text: str | bytes, expected: str = "") -> list[str]:
    with pytest.raises(TraceWrong) as found:
        read(tmp_path, text, expected)
    return str(found.value).split("\n")


def rules(trace: Recorded) -> dict[str, int]:
    return {rule.rule: rule.count for rule in trace.rules}


def helios(**cells: str) -> str:
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


def muri(**cells: str) -> str:
    row = {"job_id": "1", "num_gpu": "4", "submit_time": "5000", "duration": "60000", "interval": "0"}
    return ",".join((row | cells).values()) + "\n"


# the real ones -----------------------------------------------------------------------------------------
def test_philly_whole_has_the_counts_of_its_readme() -> None:
    trace = read_trace(DATA / "philly_jobs_82k.csv.gz")
    assert len(trace.jobs) == 82_247
    assert len({job.team for job in trace.jobs}) == 15
    assert sum(job.duration_ms * job.gpus for job in trace.jobs) // 3_600_000 == 978_078
    assert round(trace.jobs[-1].arrive_ms / 8_640_000) == 1_089
    assert rules(trace) == {
        "submission is a local wall clock, read without zones or summer time": 82_247,
        "the trace has no users": 82_247,
        "rows earlier than the row before them are sorted into their place, stably": 44_878,
    }


def test_philly_is_sorted_stably_as_a_reader_that_shares_nothing_sorts_it() -> None:
    trace = read_trace(DATA / "philly_jobs_82k.csv.gz")
    plain = naive_sim.philly(DATA / "philly_jobs_82k.csv.gz", "", 100_000)
    assert [(job.arrive_ms, job.duration_ms, job.gpus) for job in trace.jobs] == [job[1:] for job in plain]


def test_muri_is_in_milliseconds() -> None:
    trace = read_trace(DATA / "muri_trace3.csv")
    plain = naive_sim.muri(DATA / "muri_trace3.csv", 1000)
    assert [(job.arrive_ms, job.duration_ms, job.gpus) for job in trace.jobs] == [job[1:] for job in plain]


def test_helios_has_users_limits_and_real_ends() -> None:
    trace = read_trace(DATA / "tiny_helios_200.csv")
    assert trace.jobs[0] == RecordedJob(
        row=10,
        request_id="helios-765563",
        team="vcvGl",
        user="uH3om",
        gpus=128,
        arrive_ms=0,
        duration_ms=24_000,
        limit_ms=24_000,
        outcome=Outcome.CANCELLED,
    )
    outcomes = [job.outcome for job in trace.jobs]
    assert {outcome: outcomes.count(outcome) for outcome in set(outcomes)} == {
        Outcome.SUCCEEDED: 82,
        Outcome.FAILED: 59,
        Outcome.CANCELLED: 59,
    }


@pytest.mark.parametrize(
    ("name", "count", "gpus", "last_ms"),
    [("tiny_philly_200.csv", 200, 231, 6_895_000), ("tiny_helios_200.csv", 200, 4_040, 554_065_000)],
)
def test_the_small_traces_are_read_whole(name: str, count: int, gpus: int, last_ms: int) -> None:
    trace = read_trace(DATA / name)
    assert (len(trace.jobs), sum(job.gpus for job in trace.jobs), trace.jobs[-1].arrive_ms) == (count, gpus, last_ms)


# how a file may look -----------------------------------------------------------------------------------
ROW = f"{CLOCK},75.5,12,906,a\n"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda text: text.replace(b"\n", b"\r\n"), id="lines ended by CR and LF"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text, id="a byte order mark"),
        pytest.param(lambda text: text.rstrip(b"\n"), id="no end of line at the end"),
        pytest.param(lambda text: b"# a comment\n\n" + text.replace(b"\n", b"\n \n# another\n"), id="comments"),
        pytest.param(lambda text: text.replace(b",", b" , "), id="blanks round the cells"),
        pytest.param(lambda text: text.replace(b"12", b'"12"'), id="quotes"),
        pytest.param(gzip.compress, id="packed"),
        pytest.param(lambda text: gzip.compress(text[:40]) + gzip.compress(text[40:]), id="packed in two members"),
    ],
)
@pytest.mark.parametrize(
    "text", [PHILLY + ROW, HELIOS + helios(num_chips="12"), MURI + muri(num_gpu="12")], ids=["philly", "helios", "muri"]
)
def test_what_editors_and_packers_do_to_a_file_changes_nothing(
    tmp_path: Path, text: str, written: Callable[[bytes], bytes]
) -> None:
    def told(trace: Recorded) -> list[tuple[int, int, int]]:
        return [(job.arrive_ms, job.duration_ms, job.gpus) for job in trace.jobs]

    plain, other = read(tmp_path, text), read(tmp_path, written(text.encode()))
    assert len(plain.jobs) == 1
    assert told(other) == told(plain)
    assert other.sha256 != plain.sha256


def test_rows_of_one_second_stay_in_the_order_of_the_file_and_count_from_the_first(tmp_path: Path) -> None:
    rows = "".join(
        helios(job_id=str(n), submit_time=f"{at}000000") for n, at in [(1, 9), (2, 5), (3, 9), (4, 5), (5, 7)]
    )
    trace = read(tmp_path, HELIOS + rows)
    assert [(job.request_id, job.arrive_ms) for job in trace.jobs] == [
        ("helios-2", 0),
        ("helios-4", 0),
        ("helios-5", 2_000),
        ("helios-1", 4_000),
        ("helios-3", 4_000),
    ]
    assert rules(trace)["rows earlier than the row before them are sorted into their place, stably"] == 2


def test_rows_without_a_gpu_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, PHILLY + f"{CLOCK},75,0,0,a\n{CLOCK},0,1,0,a\n")
    assert [(job.request_id, job.duration_ms) for job in trace.jobs] == [("philly-3", 0)]
    assert trace.rules[-1] == Rule(rule="rows without a GPU are left out", count=1)


def test_the_format_that_was_asked_for_is_the_one_that_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, MURI + muri(), "muri").format == "muri"
    assert wrong(tmp_path, MURI + muri(), "philly") == [
        "trace.csv: row 1: begins a muri trace, not a philly one: say --format muri, or leave it out"
    ]
    assert wrong(tmp_path, MURI + muri(), "log")[0].startswith("trace.csv: row 1: begins a muri trace, not a log one")


def test_a_file_that_is_not_there_is_an_error_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.csv")


# what is no trace --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "row 1: is no header of a known trace (philly: timestamp,duration", id="empty"),
        pytest.param(b"\xef\xbb\xbf", "row 1: is no header of a known trace", id="a byte order mark alone"),
        pytest.param("\n# c\n", "row 1: is no header of a known trace", id="comments alone"),
        pytest.param("a,b\n1,2\n", "row 1: 'a,b' is no header of a known trace", id="another table"),
        pytest.param(PHILLY, "without a job to run: name another (it has no rows)", id="a header alone"),
        pytest.param(HELIOS, "without a job to run: name another (it has no rows)", id="a helios header alone"),
        pytest.param(MURI, "without a job to run: name another (it has no rows)", id="a muri header alone"),
        pytest.param(PHILLY + f"{CLOCK},9,0,0,a", "(submission is a local wall clock", id="no row with a GPU"),
        pytest.param(PHILLY.replace("\n", "\r") + ROW, "row 1: has its lines ended by CR alone", id="CR alone"),
        pytest.param("timestamp,duration\n", "row 1, column cluster: is missing: a philly trace has it", id="missing"),
        pytest.param(HELIOS.replace("user,", ""), "row 1, column user: is missing: a helios trace", id="no users"),
        pytest.param(MURI.replace("duration,", ""), "row 1, column duration: is missing: a muri", id="no durations"),
        pytest.param(PHILLY[:-1] + ",cluster\n", "column cluster: stands there twice: keep one", id="twice"),
        pytest.param(b"\xff\xfet\x00", "row 1: is not UTF-8 text", id="UTF-16"),
        pytest.param(PHILLY.encode() + b"\n\xe9,1,1,1,a\n", "row 3: is not UTF-8 text", id="Latin-1 in a row"),
        pytest.param(PHILLY + "\0,1,1,1,a\n", "row 2", id="a byte that is no text"),
        pytest.param(b"\x1f\x8b\x08\x00", "is packed and cannot be unpacked", id="half a packed file"),
        pytest.param(
            gzip.compress((PHILLY + ROW * 99).encode())[:-30],
            "is packed and cannot be unpacked",
            id="a torn packed one",
        ),
        pytest.param("a" * (reading.MAX_LINE + 1), "row 1: is longer than 2097152 bytes", id="a line without an end"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_way_out(tmp_path: Path, text: str | bytes, expected: str) -> None:
    told = wrong(tmp_path, text)
    assert any(expected in line for line in told), told
    assert all(line.startswith("trace.csv: row ") for line in told)


def test_a_packed_file_that_was_made_to_fill_the_memory_is_refused_early(tmp_path: Path) -> None:
    bomb = gzip.compress(b"#\n" * (20 << 20))
    assert len(bomb) < 1 << 20
    (told,) = wrong(tmp_path, bomb)
    assert told.endswith("is beyond 100 times the packed file: no trace packs so well, unpack it yourself")
    row = int(told.partition("row ")[2].partition(":")[0])
    assert 2 * row < (1 << 20) + 100 * len(bomb) + 1_000


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 200)
    for raw in (PHILLY + ROW * 20).encode(), gzip.compress((PHILLY + ROW * 20).encode()):
        assert wrong(tmp_path, raw) == ["trace.csv: row 6: is beyond 0 MiB of a table: cut it"]


def test_the_digest_is_that_of_the_whole_file_as_it_lies_on_disk(tmp_path: Path) -> None:
    for raw in (PHILLY + ROW * 9).encode(), gzip.compress((PHILLY + ROW * 9_000).encode()):
        assert read(tmp_path, raw).sha256 == hashlib.sha256(raw).hexdigest()


def test_more_rows_than_a_trace_may_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlease.trace.cells.MAX_ROWS", 3)
    assert len(read(tmp_path, PHILLY + ROW * 3).jobs) == 3
    assert wrong(tmp_path, PHILLY + ROW * 4) == ["trace.csv: row 5: is row 4 of a table: cut it to 3"]


def test_all_problems_of_a_file_are_gathered_and_the_first_are_shown(tmp_path: Path) -> None:
    told = wrong(tmp_path, PHILLY + f"{CLOCK},x,y,0,a\n" * 30)
    assert len(told) == SHOWN_PROBLEMS + 1
    assert told[0].startswith("trace.csv: row 2, column duration: 'x'")
    assert told[-1] == "trace.csv: and 40 more"


def test_a_file_of_nothing_but_problems_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert wrong(tmp_path, PHILLY + "x,1,1,1,a\n" * 5_000)[-1] == "trace.csv: and 980 more"
