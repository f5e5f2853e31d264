"""Gangs over three agents (1.15): they begin together, meet where they are told, and end together."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from fairlease.runtime.supervisor import agent_part, service_parts
from tests.live import process
from tests.live.cell import GPUS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import QUICK, Ears, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTS = ("host-001", "host-002", "host-003", "host-004")
AGENTS = {"agent-1": HOSTS[:1], "agent-2": HOSTS[1:2], "agent-3": HOSTS[2:]}
GANG = msgspec.structs.replace(QUICK, lease_ms=60_000, start_limit_ms=60_000)
MEETS = """
import os, socket, sys, time
rank, size = int(os.environ["FAIRLEASE_RANK"]), int(os.environ["FAIRLEASE_WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert os.environ["FAIRLEASE_RENDEZVOUS"] == f"{where[0]}:{where[1]}"
assert (os.environ["NNODES"], os.environ["NODE_RANK"]) == (str(size), str(rank))
if rank == 0:
    with socket.create_server(where, backlog=size) as door:
        door.settimeout(30)
        guests = [door.accept()[0] for _ in range(size - 1)]
    ranks = sorted(int(guest.recv(16)) for guest in guests)
    for guest in guests:
        guest.sendall(b"agreed")
    sys.exit(ranks != list(range(1, size)))
until = time.monotonic() + 30
while True:
    try:
        with socket.create_connection(where, timeout=30) as way:
            way.sendall(str(rank).encode())
            sys.exit(way.recv(16) != b"agreed")
    except ConnectionRefusedError:
        assert time.monotonic() < until, "nobody is there"
        time.sleep(0.02)
"""
"""Rank 0 listens where it is told to, the others go there; all agree that all came."""
NOTICED = (
    'trap "cat $FAIRLEASE_PREEMPT_FILE >$STARTS.notice-$FAIRLEASE_RANK; exit 9" TERM; : >$STARTS.up-$FAIRLEASE_RANK; '
)
"""What a rank does that is asked to leave: it keeps the notice, in a file of its own."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    agents = [agent_part(f"{len(hosts)}x{GPUS}", name, first_host=int(hosts[0][-3:])) for name, hosts in AGENTS.items()]
    async with cell_at(tmp_path_factory.mktemp("gangs") / "cell", parts=[*service_parts(), *agents]) as cell:
        await cell.answered("change-policy", {"name": "gang", "policy": msgspec.to_builtins(GANG)})
        yield cell


def meets(cell: Cell, name: str, hosts: int = 4, **more: Any) -> Job:  # noqa: ANN401 - fields of a job
    program = cell.home / "meets.py"
    program.write_text(MEETS)
    return Job(name, f"exec python3 -I -S {program}", hosts=hosts, gpus=GPUS, **more)


def tags(cell: Cell, job: str) -> list[str]:
    """What happened to the parts of a job, in order, without what is said of the whole."""
    return [event["type"] for event in cell.journal.of_job(job, "part-ready", "attempt-started")]


async def _ready(cell: Cell, job: str, count: int) -> None:
    await cell.event(job, "part-ready", count=count)


async def test_the_ranks_of_a_gang_meet_where_they_are_told_and_all_succeed(cell: Cell) -> None:
    # rule: 1.15
    jobs = [await cell.submit(meets(cell, f"meets-{turn}")) for turn in range(3)]
    await cell.over(*jobs)
    for job in jobs:
        assert tags(cell, job) == ["part-ready"] * 4 + ["attempt-started"] * 4
        (said,) = [event["rendezvous"] for event in cell.journal.of_job(job, "part-ready") if "rendezvous" in event]
        view = await cell.ended(job)
        assert view["attempts"][0]["rendezvous"] == f"127.0.0.1:{said['port']}"
    await cell.judge()


async def test_gangs_that_begin_at_once_meet_at_places_of_their_own(cell: Cell) -> None:
    # rule: 1.15
    jobs = [await cell.submit(meets(cell, f"beside-{turn}", hosts=2)) for turn in range(6)]
    await cell.over(*jobs)
    await cell.judge()


async def test_no_rank_begins_before_the_agent_that_stood_still_is_ready_too(cell: Cell) -> None:
    # rule: 1.15
    halted = cell.pid("agent-2")
    process.send(signal.SIGSTOP, halted)
    try:
        before = len(cell.started())
        job = await cell.submit(meets(cell, "halted"))
        await _ready(cell, job, 3)
        other = await cell.submit(Job("past-it", "exit 3", budget="team-b", end="job-failed", code=3, min_runtime="0s"))
        why = await eventually(lambda: _told(cell, job, "3 of 4 hosts are ready"), "the wait is explained")
        assert "it waits for host-002" in why
        assert (await cell.ask("explainer", "job", {"job": job}))["attempts"][-1]["not_ready"] == ["host-002"]
        assert len(cell.started()) == before, "nothing of it has begun"
        assert tags(cell, job) == ["part-ready"] * 3
    finally:
        process.send(signal.SIGCONT, halted)
    await cell.over(job, other)
    assert tags(cell, job) == ["part-ready"] * 4 + ["attempt-started"] * 4
    await cell.judge()


async def _told(cell: Cell, job: str, text: str) -> str:
    answer = await cell.ask("explainer", "why", {"job": job})
    said = str(answer.get("text", {}).get("en", ""))
    return said if text in said else ""


async def test_an_agent_that_is_killed_before_the_gang_goes_comes_back_and_all_begin(cell: Cell) -> None:
    # rule: 1.15
    halted = cell.pid("agent-2")
    process.send(signal.SIGSTOP, halted)
    try:
        job = await cell.submit(meets(cell, "killed-ready"))
        await _ready(cell, job, 3)
        old = dict(zip(("agent-1", "agent-3"), cell.kill("agent-1", "agent-3"), strict=True))
        for name, pid in old.items():
            await cell.replaced(name, pid)
    finally:
        process.send(signal.SIGCONT, halted)
    await cell.over(job)
    assert tags(cell, job) == ["part-ready"] * 4 + ["attempt-started"] * 4
    await cell.judge()


@pytest.mark.parametrize("names", [("bus",), ("admission-a", "preemption-a")], ids=" and ".join)
async def test_what_carries_the_word_dies_before_the_gang_goes_and_all_begin_once(
    cell: Cell, names: tuple[str, ...]
) -> None:
    # rule: 1.15
    halted = cell.pid("agent-2")
    process.send(signal.SIGSTOP, halted)
    try:
        job = await cell.submit(meets(cell, f"carried-{names[0]}"))
        await _ready(cell, job, 3)
        old = cell.kill(*names)
    finally:
        process.send(signal.SIGCONT, halted)
    for name, pid in zip(names, old, strict=True):
        await cell.replaced(name, pid)
    await cell.over(job)
    assert tags(cell, job) == ["part-ready"] * 4 + ["attempt-started"] * 4
    await cell.judge()


async def test_a_gang_whose_agent_is_killed_for_good_before_it_goes_has_failed_to_start(cell: Cell) -> None:
    # rule: 1.15 8.4
    quick = msgspec.structs.replace(GANG, start_limit_ms=8_000)
    await cell.answered("change-policy", {"name": "quick-start", "policy": msgspec.to_builtins(quick)})
    supervisor = cell.supervisor
    before = len(cell.started())
    supervisor._keepers["agent-2"].cancel()
    cell.kill("agent-2")
    job = await cell.submit(meets(cell, "lost-for-good", end="job-failed"))
    ending = await cell.event(job, "attempt-ending")
    assert (ending["end"], ending["detail"]) == ("start-failed", "host-002 never became ready")
    supervisor._keepers["agent-2"] = asyncio.create_task(supervisor._keep(supervisor.parts["agent-2"]))
    await cell.over(job)
    assert len(cell.started()) == before, "no rank of it ever began"
    assert tags(cell, job) == ["part-ready"] * 3
    await cell.answered("change-policy", {"name": "gang", "policy": msgspec.to_builtins(GANG)})
    await cell.judge()


async def test_words_about_readiness_that_are_foreign_false_or_late_begin_nothing(cell: Cell) -> None:
    # rule: 1.15
    halted = cell.pid("agent-2")
    process.send(signal.SIGSTOP, halted)
    try:
        before = len(cell.started())
        job = await cell.submit(meets(cell, "forged"))
        await _ready(cell, job, 3)
        grant = await cell.event(job, "gang-granted")
        position = next(n for n, record in enumerate(cell.journal.records, 1) if grant in record["events"])
        token = f"1-{position}-{cell.journal.records[position - 1]['events'].index(grant)}"
        attempt = {"attempt": f"{job}-a1", "token": token}
        forged: list[tuple[str, object]] = [
            ("host-002", {**attempt, "token": "1-1-0"}),
            ("host-002", {"attempt": f"{job}-a2", "token": token}),
            ("host-009", attempt),
            ("host-001", {**attempt, "rendezvous": {"address": "10.6.6.6", "port": 6}}),
            ("host-002", {**attempt, "token": 7}),
            ("host-002", [attempt]),
        ]
        last = 0
        for host, body in forged:
            subject = cell.subjects.report(host, "run-ready")
            last = await cell.publish(subject, json.dumps(body).encode())
        await eventually(lambda: _is_answered(cell, last), "all of it is answered")
        assert tags(cell, job) == ["part-ready"] * 3
        assert len(cell.started()) == before
    finally:
        process.send(signal.SIGCONT, halted)
    await cell.over(job)
    await cell.judge()


async def _is_answered(cell: Cell, seq: int) -> bool:
    await cell.journal.read()
    answered = cell.journal.oracle.answered.get(("admission", cell.subjects.reports_stream), [])
    return bool(answered) and answered[-1] >= seq


async def test_one_rank_that_fails_ends_the_others_with_notice_and_grace(cell: Cell) -> None:
    # rule: 1.15 1.8 8.1
    gate = cell.home / "gate-fails"
    script = (
        f'{NOTICED}if [ "$FAIRLEASE_RANK" = 2 ]; then while [ ! -e {gate} ]; do sleep 0.02; done; exit 7; fi; '
        "while :; do sleep 0.02; done"
    )
    job = await cell.submit(Job("fails", script, hosts=4, gpus=GPUS, grace="200ms", end="job-failed", code=7))
    await eventually(lambda: len(list(cell.home.glob("starts.up-*"))) == 4, "all ranks listen")
    gate.touch()
    await cell.over(job)
    ends = {event["host"]: event["end"] for event in cell.journal.of_job(job, "part-gone")}
    assert sorted(ends.values()) == ["cancelled", "cancelled", "cancelled", "failed"]
    notices = [path.read_text() for path in sorted(cell.home.glob("starts.notice-*"))]
    assert [json.loads(notice)["reason"] for notice in notices] == ["failed"] * 3
    for notice in map(json.loads, notices):
        assert notice["kill_at_ms"] > notice["term_at_ms"]
    await cell.judge()


async def test_a_gang_that_fails_begins_again_after_its_backoff_together(cell: Cell) -> None:
    # rule: 1.15 1.8
    program = meets(cell, "again").script
    fails = '[ "$FAIRLEASE_ATTEMPT_NUMBER$FAIRLEASE_RANK" = 11 ] && exit 5; '
    script = f'{fails}[ "$FAIRLEASE_ATTEMPT_NUMBER" = 1 ] && exec sleep 600; {program}'
    job = await cell.submit(Job("again", script, hosts=4, gpus=GPUS, max_retries=1))
    await cell.over(job)
    assert [event["end"] for event in cell.journal.of_job(job, "attempt-ended")] == ["failed", "succeeded"]
    assert len(cell.journal.of_job(job, "part-ready")) == 8
    await cell.judge()


async def test_a_part_that_cannot_begin_ends_a_gang_of_which_nothing_has_begun(cell: Cell) -> None:
    # rule: 1.15
    before = len(cell.started())
    body = cell.body(Job("refused", "exit 0", hosts=4, gpus=GPUS))
    body["contract"]["spec"]["image"] = "ghcr.io/lab/train:7"
    await cell.send("submit-job", body)
    job = Job("refused", end="job-failed")
    cell.jobs[job.id] = job
    await cell.over(job.id)
    assert len(cell.started()) == before
    assert tags(cell, job.id) == []
    (end,) = cell.journal.of_job(job.id, "attempt-ended")
    assert end["end"] == "start-failed"
    await cell.judge()


async def test_a_job_on_one_host_begins_without_a_word_about_readiness(cell: Cell) -> None:
    # rule: 1.15
    ears = await Ears.at(cell, cell.subjects.order("*"))
    job = await cell.submit(meets(cell, "alone", hosts=1))
    await cell.over(job)
    assert tags(cell, job) == ["attempt-started"]
    orders = []
    while not orders or json.loads(orders[-1].data).get("runs"):
        orders.append(await ears.next())
    places = [json.loads(order.data)["position"] for order in orders]
    assert all(one < other for one, other in pairwise(places))
    runs = [run for order in orders for run in json.loads(order.data).get("runs", ())]
    assert all("is_go" not in run and "rendezvous" not in run for run in runs)
    await cell.judge()
