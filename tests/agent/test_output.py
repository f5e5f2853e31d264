"""The log of a job: capped while it runs, offsets that stay true, text cut between characters."""

from pathlib import Path

import msgspec
import pytest

from fairlease.agent.layout import LOG
from fairlease.agent.output import Log, read_log, whole_text
from fairlease.agent.questions import answer
from fairlease.runtime import bus_server
from tests.agent.bench import Bench, shell


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.chdir(tmp_path)
    return Log(80)  # a head of 40 bytes, segments of 20


def read_all(directory: Path, limit: int = 1000) -> tuple[bytes, int]:
    data, offset = b"", 0
    while True:
        piece, after, total = read_log(str(directory), offset, limit)
        data += piece
        if after == offset:
            assert after == total
            return data, total
        offset = after


def test_what_fits_is_one_file(log: Log, tmp_path: Path) -> None:
    log.write(b"x" * 40)
    assert [path.name for path in tmp_path.iterdir()] == [LOG]
    assert read_all(tmp_path) == (b"x" * 40, 40)


def test_head_and_newest_tail_are_kept_and_one_line_says_what_was_cut(log: Log, tmp_path: Path) -> None:
    printed = bytes(ord("a") + k % 26 for k in range(1000))
    log.write(printed)
    head, line, tail = read_all(tmp_path)[0].split(b"\n")
    assert head == printed[:40]
    assert 20 <= len(tail) <= 40
    assert tail == printed[-len(tail) :]
    assert f"{1000 - 40 - len(tail)} bytes were cut here" in line.decode()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 80


@pytest.mark.parametrize("size", [1, 3, 7, 19, 64])
def test_the_size_of_writes_and_reads_changes_nothing(log: Log, tmp_path: Path, size: int) -> None:
    printed = bytes(ord("a") + k % 26 for k in range(333))
    for start in range(0, len(printed), size):
        log.write(printed[start : start + size])
    whole, total = read_all(tmp_path)
    assert total == 333
    assert read_all(tmp_path, limit=size) == (whole, total)


@pytest.mark.parametrize(
    ("offset", "data", "after"),
    [
        pytest.param(-5, b"0123456789", 10, id="below the start is the start"),
        pytest.param(4, b"456789", 10, id="from the middle"),
        pytest.param(10, b"", 10, id="at the end is nothing"),
        pytest.param(99, b"", 10, id="beyond the end is the end"),
    ],
)
def test_offsets_count_what_was_printed(log: Log, tmp_path: Path, offset: int, data: bytes, after: int) -> None:
    log.write(b"0123456789")
    assert read_log(str(tmp_path), offset, 100) == (data, after, 10)


def test_a_run_without_a_log_has_printed_nothing(tmp_path: Path) -> None:
    assert read_log(str(tmp_path), 0, 100) == (b"", 0, 0)


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        pytest.param(b"abc", b"abc", id="ascii"),
        pytest.param("aü".encode(), "aü".encode(), id="a whole character"),
        pytest.param("aü".encode()[:-1], b"a", id="half of two bytes"),
        pytest.param("a€".encode()[:-1], b"a", id="two of three bytes"),
        pytest.param("a😀".encode()[:-1], b"a", id="three of four bytes"),
        pytest.param(b"a\x80\x80\x80\x80", b"a\x80\x80\x80\x80", id="no text at all is left as it is"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_text_is_cut_between_characters(data: bytes, whole: bytes) -> None:
    assert whole_text(data) == whole


@pytest.mark.asyncio
async def test_a_job_that_prints_without_end_fills_no_disk(state: Path) -> None:
    bench = Bench(state, log_bytes=100_000).open()
    part = bench.part("a", shell("echo first; seq 200000; echo last >&2"))
    bench.order(part)
    await bench.gone(part)
    bench.close()
    text = read_all(bench.directory(part).path, 5000)[0].decode()
    assert text.startswith("first\n1\n2\n")
    assert text.endswith("\n199999\n200000\nlast\n")
    assert text.count("bytes were cut here") == 1
    assert len(text) < 100_200


@pytest.mark.asyncio
async def test_the_largest_answer_with_the_worst_text_fits_a_message(bench: Bench) -> None:
    part = bench.part("a", shell("head -c 100000 /dev/zero | tr '\\0' '\\1'"))
    bench.order(part)
    await bench.gone(part)
    asked = msgspec.json.encode({"attempt": part.attempt, "limit": 10**9})
    found = answer(bench.host, asked)
    assert (found.next, found.is_end) == (65_536, False)
    assert len(msgspec.json.encode(found)) < bus_server.MAX_PAYLOAD
