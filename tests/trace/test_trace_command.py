"""What `fairlease trace play` leaves behind: nothing after a good play, the evidence after any other."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.core.world import World
from fairlease.runtime.errors import BusAway
from fairlease.trace import command
from fairlease.trace.player import Result
from fairlease.trace.report import table_of

TRACE = str(Path(__file__).parents[1] / "data" / "tiny_philly_200.csv")
EQUAL = {"decisions": 7, "divergences": 0, "first": None, "events_per_s": 1.0, "events": 9, "digest": "d" * 64}


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plays put their state directories."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _played(lost: tuple[str, ...] = ()) -> Callable[..., Any]:
    """A play that is over at once, without a cell."""

    async def play(workload: object, home: Path, **_: object) -> Result:
        return Result(
            world=World(), log=home / "log.jsonl", refused={}, lost=lost, gaps=2, skipped_trace_ms=7_200_000, wall_s=1.5
        )

    return play


def _play(monkeypatch: pytest.MonkeyPatch, play: Callable[..., Any], replay: dict[str, Any], *words: str) -> int:
    monkeypatch.setattr(command, "play", play)
    monkeypatch.setattr(command, "replayed", lambda _log: replay)
    return main(["trace", "play", TRACE, "--speed", "2000", "--limit", "3", *words])


def test_a_good_play_leaves_nothing_but_its_report(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _play(monkeypatch, _played(), EQUAL, "--json") == 0
    assert list(homes.iterdir()) == []
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert told.err == ""
    assert list(report) == [
        *("apiVersion", "kind", "trace", "policy", "hosts", "gpus", "speed", "cut_s", "jobs", "wait", "startup"),
        *("pending", "slowdown", "rules", "wall_s", "positions", "events", "digest", "replay"),
    ]
    assert list(report["wait"]) == ["all", "idle", "debug", "small", "medium", "large", "gangs_128"]
    assert report["wait"]["all"] == {"p50_s": None, "p90_s": None, "p99_s": None, "mean_s": None}
    assert report["rules"][-1] == {
        "rule": "gaps in which nothing ran or waited are skipped: 2.0 h of the trace",
        "count": 2,
    }
    assert "replay: 7 decisions, 0 divergences" in table_of(report)


@pytest.mark.parametrize(
    ("lost", "divergences"),
    [pytest.param(("job-x",), 0, id="a job was lost"), pytest.param((), 1, id="the log differs")],
)
def test_a_play_that_failed_keeps_its_log(
    homes: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lost: tuple[str, ...],
    divergences: int,
) -> None:
    assert _play(monkeypatch, _played(lost), EQUAL | {"divergences": divergences}) == 1
    (kept,) = homes.iterdir()
    assert str(kept) in capsys.readouterr().err


def test_a_cell_that_does_not_come_up_keeps_what_it_said(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away(*_: object, **__: object) -> Result:
        raise BusAway("not ready after 30 s: ranker")

    assert _play(monkeypatch, away, EQUAL, "--json") == 69
    (kept,) = homes.iterdir()
    told = json.loads(capsys.readouterr().err)
    assert re.fullmatch(rf"not ready after 30 s: ranker\n.* {kept}", told["text"])
    shutil.rmtree(kept)


def test_the_directory_to_keep_must_be_a_new_one(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _play(monkeypatch, _played(), EQUAL, "--keep", str(homes)) == 64
    assert "is there already" in capsys.readouterr().err
    assert _play(monkeypatch, _played(), EQUAL, "--keep", str(homes / "new")) == 0
    assert [path.name for path in homes.iterdir()] == ["new"]
