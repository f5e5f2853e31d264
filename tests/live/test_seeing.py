"""What a cell of real processes shows of itself: the way of one job, and never a secret on any way."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from fairlease.runtime.spans import SUBMITTED, span_id, trace_id
from fairlease_schemas.subjects import SERVICES
from tests.house.tree import ROOT
from tests.live.cell import GPUS, HOSTS, Up, up_at
from tests.live.court import eventually
from tests.live.desk import Job
from tests.live.journal import api, read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "canary7c1e90b2d4"
PLANTED = {"WANDB_API_KEY": f"{CANARY}-env", "STORE_PASSWORD": f"{CANARY}-store"}
TOKEN = f"hf_{CANARY}{CANARY}"
WAY = [
    "submitted",
    "admission jobs",
    "ranker cycle-ranked",
    "placement cycle-placed",
    "preemption order",
    "agent contract",
    "agent process",
]


def beside(job: str) -> list[str]:
    """What a job's trace tells of beside records."""
    attempt = f"{job}-a1"
    return [SUBMITTED, *(f"{step} {attempt} host-001" for step in ("order", "contract", "process"))]


class Seen(Up):
    """A cell whose processes were started with secrets around them, and tell of every step to a file."""

    @property
    def traces(self) -> Path:
        return self.home.parent / "traces.jsonl"

    @property
    def env(self) -> dict[str, str]:
        return {**super().env, **PLANTED, "FAIRLEASE_TRACES": f"file:{self.traces}", "FAIRLEASE_METRICS_PORT": "0"}

    def trace(self, job: str) -> list[dict[str, Any]]:
        """The spans of a job in the order of their beginnings."""
        exports = [json.loads(line) for line in self.traces.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        every = [span for export in exports for of in export["resourceSpans"] for span in of["scopeSpans"][0]["spans"]]
        mine = [span for span in every if span["traceId"] == trace_id(job)]
        return sorted(mine, key=lambda span: int(span["startTimeUnixNano"]))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seen]:
    async with up_at(tmp_path_factory.mktemp("seeing") / "cell", Seen) as cell:
        yield cell


def is_whole(spans: list[dict[str, Any]], wanted: set[str]) -> bool:
    """Whether these steps are told, and all that any of them is led to by."""
    ids = {span["spanId"] for span in spans}
    return wanted | {link["spanId"] for span in spans for link in span["links"]} <= ids


def way(spans: list[dict[str, Any]], last: str) -> list[str]:
    """The names of the steps that led to the last one, by their links."""
    by_id = {span["spanId"]: span for span in spans}
    span = next(span for span in spans if span["name"] == last)
    names = [last]
    while span["links"]:
        span = by_id[span["links"][0]["spanId"]]
        names.insert(0, span["name"])
    return names


def named(cell: Seen, job: str) -> dict[str, str]:
    """The positions whose records name the job, each with the service that decided it."""
    return {
        str(position): record["by"]
        for position, record in enumerate(cell.journal.records, start=1)
        for event in record["events"]
        if event.get("job") == job or str(event.get("attempt", "")).startswith(f"{job}-a")
    }


async def test_the_trace_of_a_job_shows_every_decision_on_its_way(cell: Seen) -> None:
    job = await cell.submit(Job("seen"))
    await cell.over(job)
    await cell.event(job, "attempt-charged")
    decided = {span_id(job, position) for position in named(cell, job)}
    wanted = decided | {span_id(job, what) for what in beside(job)}
    await eventually(lambda: is_whole(cell.trace(job), wanted), "every step is told, and what led to each")
    spans = cell.trace(job)
    assert way(spans, "agent process") == WAY
    ids = {span["spanId"] for span in spans}
    assert len(ids) == len(spans), "each is told once"
    ranked = next(span["spanId"] for span in spans if span["name"] == "ranker cycle-ranked")
    assert ids - wanted == {ranked}
    first = span_id(job, SUBMITTED)
    for span in spans:
        assert "parentSpanId" not in span, "a job waits for days between two steps"
        assert {link["spanId"] for link in span["links"]} <= ids
        assert bool(span["links"]) == (span["spanId"] != first), "each is led to by another"


async def scraped(cell: Seen, service: str) -> dict[str, float]:
    """The figures that a service answers at the port its health names."""
    return await figures((await cell.ask(service, "health"))["metrics_port"])


async def figures(port: int) -> dict[str, float]:
    """The figures answered at that port, by their names and labels."""
    text = await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode())
    return {
        " ".join((sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items())))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def folded(cell: Seen) -> bool:
    """Whether the explainer has folded all that was read of the log."""
    return int((await cell.ask("explainer", "health"))["position"]) >= len(cell.journal.records)


async def test_the_figures_of_a_cell_are_those_of_its_log(cell: Seen) -> None:
    before = await scraped(cell, "explainer")
    waits = await cell.submit(Job("counted", "exec sleep 600", gpus=3, end="job-cancelled"))
    await cell.event(waits, "attempt-started")
    await eventually(lambda: folded(cell), "the explainer has folded it")
    during = await scraped(cell, "explainer")
    granted, waited = "fairlease_events_total kind=gang-granted", "fairlease_queue_wait_seconds_count class=budgeted"
    assert during[granted] - before.get(granted, 0) == during[waited] - before.get(waited, 0) == 1
    assert during["fairlease_jobs class=budgeted state=running"] == 1
    pools = {name: value for name, value in during.items() if name.startswith("fairlease_gpus ")}
    assert (sum(pools.values()), [v for name, v in pools.items() if "allocated" in name]) == (HOSTS * GPUS, [3])
    held = [v for name, v in during.items() if name.startswith("fairlease_budget_held_gpus budget=team-a ")]
    assert held == [3]
    await cell.cancel(waits)
    await cell.over(waits)
    page = (ROOT / "docs/seeing.md").read_text()
    for service in SERVICES:
        found = await scraped(cell, service)
        names = {re.sub(r"_(bucket|sum|count|created)$", "", name.split()[0]) for name in found}
        assert not sorted(name for name in names if f"`{name}`" not in page), "the page names every figure"
        assert found["fairlease_ready"] == 1, service
        if service in ("admission", "placement"):
            written = cell.journal.written_by(service)
            assert found["fairlease_records_written_total"] >= 1
            assert found["fairlease_decision_duration_seconds_count"] <= written


async def test_an_agent_says_whose_hosts_and_runs_it_has(cell: Seen) -> None:
    said = [json.loads(line) for line in (cell.home / "logs/agent.log").read_text().splitlines()]
    (port,) = [line["port"] for line in said if "port" in line]
    job = await cell.submit(Job("watched", "exec sleep 600", end="job-cancelled"))
    await cell.event(job, "attempt-started")
    found = await figures(port)
    assert {name: found[f"fairlease_{name}"] for name in ("ready", "agent_hosts", "agent_leases")} == {
        "ready": 1,
        "agent_hosts": HOSTS,
        "agent_leases": HOSTS,
    }
    assert found["fairlease_agent_runs state=running"] == 1
    page = (ROOT / "docs/seeing.md").read_text()
    assert not sorted(name for name in found if f"`{name.split()[0]}`" not in page), "the page names every figure"
    await cell.cancel(job)
    await cell.over(job)


async def everything_stored(cell: Seen) -> dict[str, bytes]:
    """What every stream of the cell holds, subjects and headers with it."""
    found = {}
    for name in (await api(cell.client, "STREAM.NAMES"))["streams"]:
        messages = await read_stream(cell.client, name)
        found[name] = b"\n".join(f"{one.subject} {one.headers}".encode() + one.data for one in messages)
    return found


def everything_written(cell: Seen) -> dict[str, bytes]:
    """What the cell's processes wrote to files.

    But not the jobs' own output, which is theirs, nor the bus's store, nor keys where they belong.
    """
    home = cell.home
    theirs = ("bus/", "jetstream/", "agent/", "keys/")
    files = [path for path in home.rglob("*") if path.is_file()]
    kept = [path for path in files if not str(path.relative_to(home)).startswith(theirs)]
    return {str(path): path.read_bytes() for path in [*kept, cell.traces]}


async def test_a_secret_is_found_in_no_log_no_event_and_no_export(cell: Seen, tmp_path: Path) -> None:
    # rule: 1.13 8.4
    leaks = f'echo "password={CANARY}"; echo "STORE_PASSWORD=$STORE_PASSWORD"; h=hf; echo $h{TOKEN[2:]}; exit 3'
    job = await cell.submit(Job("leaks", leaks, end="job-failed", code=3))
    await cell.over(job)
    contract = cell.body(Job("literal"))
    contract["contract"]["spec"]["env"]["HF_TOKEN"] = TOKEN
    refused = await cell.answered("submit-job", contract)
    assert refused["outcome"] == "refused"
    for body in ({f"password={CANARY}": 1}, {"job": job, "reason": f"token {TOKEN}", TOKEN: 1}):
        unread = await cell.answered("hold-job", body)
        assert unread["outcome"] == "refused", unread
    saved = tmp_path / "log.jsonl"
    told = {}
    for words in (
        ("job", "show", job, "--json"),
        ("why", job, "--json"),
        ("queue", "--json"),
        ("acct", "--json"),
        ("doctor", "--json"),
        ("replay", "--live", "--save", str(saved)),
        ("debug", "bundle", str(tmp_path / "cell.tar.gz")),
    ):
        code, out, err = await cell.run(*words)
        assert code == 0, (words, err)
        told[" ".join(words)] = (out + err).encode()
    told["the saved log"] = saved.read_bytes()
    told["the bundle"] = gzip.decompress((tmp_path / "cell.tar.gz").read_bytes())
    assert b'"last_seq"' in told["the bundle"], "a bus with keys shows its streams to the auditor's, which is here"
    places = {**await everything_stored(cell), **everything_written(cell), **told}
    assert any(b"[redacted]" in held for held in places.values()), "what was planted came through somewhere"
    submitted = {cell.subjects.inbox_stream("local"), cell.subjects.contracts_stream}
    found = sorted(place for place, held in places.items() if CANARY.encode() in held and place not in submitted)
    assert not found
    seeds = [json.loads(path.read_text())["seed"].encode() for path in (cell.home / "keys").glob("*.key")]
    assert len(seeds) > len(SERVICES)
    assert not sorted(place for place, held in places.items() if any(seed in held for seed in seeds))
