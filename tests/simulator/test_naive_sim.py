"""The plain simulator gives the answers that other programs gave (tests/data/README.md)."""

from pathlib import Path

import pytest

from tests.simulator.naive_sim import (
    Answer,
    Job,
    Outcome,
    answer,
    fifo_key,
    muri,
    muri_cluster,
    philly,
    place,
    preemptive,
    sjf_key,
    srsf_key,
    srtf_key,
    strict,
)

DATA = Path(__file__).parents[1] / "data"
MURI_STRETCH_PERMILLE = 1015


@pytest.fixture(scope="module")
def ten_thousand() -> list[Job]:
    return philly(DATA / "philly_jobs_82k.csv.gz", "2017-10-01", 10_000)


def test_ten_thousand_jobs_on_64_hosts_wait_as_two_other_programs_say(ten_thousand: list[Job]) -> None:
    known = Answer(31_887.36, 24_198.64, 14_898, 83_963, 96_865, 2_492_117)
    assert answer(strict(ten_thousand, 64, 8, fifo_key)) == pytest.approx(known, abs=0.01, rel=0)


def test_ten_thousand_jobs_on_128_hosts_do_not_wait(ten_thousand: list[Job]) -> None:
    found = answer(strict(ten_thousand, 128, 8, fifo_key))
    assert found.mean_completion == pytest.approx(7_688.72, abs=0.01, rel=0)
    assert (found.mean_wait, found.wait_p99) == (0, 0)


@pytest.mark.parametrize(
    ("key", "mean_s", "within"), [(srtf_key, 193_081.796, 0.025), (srsf_key, 185_021.880, 0.01)], ids=["srtf", "srsf"]
)
def test_muri_is_as_published(key: object, mean_s: float, within: float) -> None:
    assert callable(key)
    hosts, size = muri_cluster(DATA / "muri_n8g8.csv")
    assert (hosts, size) == (8, 8)
    found = answer(preemptive(muri(DATA / "muri_trace3.csv", MURI_STRETCH_PERMILLE), hosts, size, key))
    assert found.mean_completion == pytest.approx(mean_s, rel=within)
    assert found.makespan == pytest.approx(8_174_135.28, rel=0.01)


def test_shortest_first_waits_less_on_the_mean_than_first_come(ten_thousand: list[Job]) -> None:
    waits = [answer(strict(ten_thousand, 64, 8, key)).mean_wait for key in (sjf_key, fifo_key)]
    assert waits[0] < waits[1] / 10


def _outcomes(done: list[Outcome]) -> list[tuple[int, int, int]]:
    return sorted((one.job.number, one.start_ms, one.end_ms) for one in done)


BIG_IN_THE_MIDDLE = [Job(0, 0, 100, 5), Job(1, 1, 10, 8), Job(2, 2, 20, 1)]


def test_nobody_passes_a_head_that_does_not_fit() -> None:
    assert _outcomes(strict(BIG_IN_THE_MIDDLE, 1, 8, fifo_key)) == [(0, 0, 100), (1, 100, 110), (2, 110, 130)]


def test_with_free_preemption_the_short_runs_at_once_and_the_long_goes_on_after() -> None:
    assert _outcomes(preemptive(BIG_IN_THE_MIDDLE, 1, 8, srtf_key)) == [(0, 0, 110), (1, 1, 11), (2, 11, 31)]


def test_remaining_service_counts_the_gpus_of_a_job() -> None:
    jobs = [Job(0, 0, 10, 8), Job(1, 0, 20, 1)]
    assert _outcomes(preemptive(jobs, 1, 8, srtf_key)) == [(0, 0, 10), (1, 10, 30)]
    assert _outcomes(preemptive(jobs, 1, 8, srsf_key)) == [(0, 20, 30), (1, 0, 20)]


def test_what_ends_now_makes_room_for_what_arrives_now() -> None:
    assert _outcomes(strict([Job(0, 0, 7, 8), Job(1, 7, 5, 8)], 1, 8, fifo_key)) == [(0, 0, 7), (1, 7, 12)]


@pytest.mark.parametrize(
    ("free", "gpus", "expected"),
    [
        pytest.param([8, 3, 5], 3, [(1, 3)], id="best fit"),
        pytest.param([5, 8, 5], 4, [(0, 4)], id="the first among equals"),
        pytest.param([3, 8, 8], 12, [(1, 8), (2, 8)], id="twelve are two whole hosts"),
        pytest.param([3, 8, 7], 12, None, id="a host in use is no whole host"),
        pytest.param([3, 2, 1], 4, None, id="room on several hosts is none on one"),
    ],
)
def test_placement(free: list[int], gpus: int, expected: list[tuple[int, int]] | None) -> None:
    assert place(free, 8, gpus) == expected
