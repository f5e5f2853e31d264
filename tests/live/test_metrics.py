"""The figures of a real cell: what was run is what they count, and a saved log gives them again."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.live.cell import GPUS, HOSTS, Up, up_at
from tests.live.desk import Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_THE_RUN = ("speed", "clock")
"""Keys that tell of who read the log, and not of the log."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("metrics") / "cell") as cell:
        yield cell


async def told(cell: Up, *words: str) -> dict[str, Any]:
    code, out, err = await cell.run(*words, "--json")
    assert code == 0, err
    return dict(json.loads(out))


async def worked(cell: Up) -> None:
    """Two gangs that fill the cell one after the other, a failure that is tried again, and a job that is cancelled."""
    first = await cell.submit(Job("first", "sleep 1", hosts=HOSTS, gpus=GPUS))
    await cell.event(first, "attempt-started", count=HOSTS)
    await cell.submit(Job("second", "sleep 1", budget="team-b", account="ci", hosts=HOSTS, gpus=GPUS))
    await cell.submit(Job("fails", "exit 3", gpus=2, max_retries=1, end="job-failed", code=3))
    waits = await cell.submit(Job("waits", "exec sleep 600", gpus=1, end="job-cancelled"))
    await cell.event(waits, "attempt-started")
    await cell.cancel(waits)
    await cell.over()
    await cell.cancel_rest()


async def test_the_live_figures_are_those_of_what_was_run_and_of_the_saved_log(cell: Up, tmp_path: Path) -> None:
    await worked(cell)
    live = await told(cell, "metrics")
    assert live["jobs"] == {"submitted": 4, "started": 4, "finished": 4}
    assert (live["hosts"], live["gpus"], live["clock"]) == (HOSTS, HOSTS * GPUS, "bus")
    for name in ("availability", "occupancy", "impact", "progress"):
        assert 0 < live[name] <= 1, name
    fulfilment = live["fulfilment"]
    assert all(0 <= ratio <= 1 for ratio in (fulfilment["mean"], fulfilment["lowest"]))
    assert set(fulfilment["by_budget"]) <= {"team-a", "team-b"}
    assert (live["preemption"]["window_breaks"], live["preemption"]["loops"], live["promises"]["broken"]) == (0, 0, 0)
    assert live["recovery"]["retries"]["count"] == 1
    decision = live["operations"]["decision"]
    assert 0 <= decision["p50_s"] <= decision["p99_s"]
    saved = tmp_path / "log.jsonl"
    assert (await cell.run("replay", "--live", "--save", str(saved)))[0] == 0
    again = await told(cell, "metrics", "--log", str(saved), "--until", _instant(live["as_of"]["log_time_ms"]))
    for report in (live, again):
        assert report["operations"].pop("decision")
        for key in OF_THE_RUN:
            report.pop(key)
    assert again["as_of"]["position"] >= live["as_of"]["position"]
    for report in (live, again):
        for key in ("decisions", "events", "digest", "as_of"):  # records may have come at the last look's own instant
            report.pop(key)
    assert again == live


async def test_every_attempt_is_accounted_for_and_costs_what_it_held(cell: Up) -> None:
    acct = await told(cell, "acct", "--person", "local")
    ends = sorted((row["budget"], row["number"], row["end"], row["exit_code"]) for row in acct["rows"])
    assert ends == [
        ("team-a", 1, "cancelled", None),
        ("team-a", 1, "failed", 3),
        ("team-a", 1, "succeeded", 0),
        ("team-a", 2, "failed", 3),
    ]
    assert all(row["charged_gpu_h"] == row["held_gpu_h"] for row in acct["rows"])
    pool = acct["rows"][0]["pool"]
    cost = await told(cell, "cost", "--by", "person", "--price", f"{pool}=2")
    assert {row["key"] for row in cost["rows"]} == {"ci", "local"}
    held = sum(row["held_gpu_h"] for row in cost["rows"])
    assert cost["total"]["money"] == pytest.approx(2 * held, abs=1e-4)


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
