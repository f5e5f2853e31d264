import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlease.cli.main import main
from fairlease.runtime import bus_server, export, streams
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import BusAway
from fairlease.runtime.follower import Follower
from fairlease.runtime.log import LogClient
from fairlease.runtime.settings import Settings
from fairlease_schemas.codec import read_record
from fairlease_schemas.job import End
from fairlease_schemas.subjects import SCOPES
from tests.dsl.cell import Cell


@pytest.fixture(scope="module")
def records() -> list[bytes]:
    """A log in which jobs run, wait, are evicted and end."""
    cell = Cell().hosts(2).budgets(a=1, b=2)
    idle = cell.submit("idle", "a", min_runtime_ms=0, hosts=2, gpus_per_host=8)
    cell.at(1_000).start(idle)
    small = cell.submit("small", "b", gpus_per_host=4)
    cell.at(2_000).gone(idle, End.CANCELLED, None)
    cell.at(3_000).start(small).at(60_000).gone(small)
    return cell.records


@pytest.fixture
def saved(records: list[bytes], tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(data + b"\n" for data in records))
    return path


def test_an_equal_log_is_reported_with_its_digest(
    saved: Path, records: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(saved), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == [
        *("kind", "positions", "decisions", "divergences", "first", "events_per_s", "events", "digest")
    ]
    assert (report["kind"], report["positions"], report["decisions"]) == ("ReplayReport", len(records), len(records))
    assert (report["divergences"], report["first"]) == (0, None)
    assert report["events"] == sum(len(read_record(data).events) for data in records)


def test_the_same_for_a_person(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(saved)]) == 0
    assert "equal: every decision comes out the same today" in capsys.readouterr().out


def test_a_changed_byte_is_found_where_it_stands(
    saved: Path, records: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    at = next(n for n, data in enumerate(records, start=1) if b'"window_ms":1800000' in data)
    lines = [*records]
    lines[at - 1] = lines[at - 1].replace(b'"window_ms":1800000', b'"window_ms":1800001')
    saved.write_bytes(b"".join(line + b"\n" for line in lines))
    assert main(["replay", str(saved), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["divergences"], report["first"]["position"]) == (1, at)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"", "the log holds no record", id="an empty log proves nothing"),
        pytest.param(b"no record\n", "line 1: not a record", id="no record at all"),
        pytest.param(b'{"v":9}\n', "line 1: not a record", id="half a record"),
    ],
)
def test_what_cannot_be_judged_is_no_verdict(
    text: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(text)
    assert main(["replay", str(path), "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    error = json.loads(told.err)
    assert (error["kind"], error["exit_code"]) == ("Error", 2)
    assert expected in error["text"]


def test_a_torn_last_line_is_no_verdict(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved.write_bytes(saved.read_bytes()[:-20])
    assert main(["replay", str(saved)]) == 2
    assert "not a record" in capsys.readouterr().err


def test_a_missing_file_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "nowhere.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_save_without_live_is_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(saved), "--save", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()


def test_no_bus_is_no_verdict_and_leaves_the_saved_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEASE_URL", "nats://127.0.0.1:9")
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(b"before\n")
    assert main(["replay", "--live", "--save", str(kept)]) == 2
    assert "does not answer" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.jsonl"]
    assert kept.read_bytes() == b"before\n"


@pytest.fixture
async def live(tmp_path: Path, records: list[bytes], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A bus whose log holds the records, and an environment that names it."""
    server = bus_server.start(tmp_path / "home", dies_with_parent=True)
    try:
        settings = Settings(state_dir=tmp_path / "home", url=server.url)
        client = await connect(settings, "test", exit_on_close=False)
        await streams.declare(client, settings.subjects, settings.accounts)
        log, last = LogClient(client, settings.subjects), dict.fromkeys(SCOPES.values(), 0)
        for data in records:
            by = read_record(data).by
            last[SCOPES[by]] = await log.append(by, "test", data, last[SCOPES[by]])
        await client.close()
        for name in ("FAIRLEASE_URL", "FAIRLEASE_CELL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "home"))
        yield
    finally:
        server.stop()


async def test_the_live_log_is_replayed_and_saved_byte_for_byte(
    live: None, records: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.jsonl"
    assert await asyncio.to_thread(main, ["replay", "--live", "--save", str(kept), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["positions"] == len(records)
    assert kept.read_bytes().splitlines() == records
    assert await asyncio.to_thread(main, ["replay", "--live", "-o", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["divergences"] == 0


async def test_a_bus_that_hands_out_nothing_is_not_waited_for(
    bus: bus_server.BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignore(_batch: object) -> None:
        pass

    monkeypatch.setattr(export, "SILENCE_S", 0.05)
    client = await connect(bus.url, "test", exit_on_close=False)
    follower = Follower(client, Settings(state_dir=Path()).subjects, ignore)
    never = [asyncio.create_task(asyncio.Event().wait()) for _ in range(2)]
    with pytest.raises(BusAway, match="hands out nothing after record 0"):
        await export.patiently(follower, *never)
    for task in never:
        task.cancel()
    await client.close()
