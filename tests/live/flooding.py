"""A flood of one account, and how long others wait for their answers beside it; for the tests and the load test."""

import asyncio
import json
import time

from tests.live.cell import GPUS, HOSTS, Cell
from tests.live.court import eventually
from tests.live.desk import Ears, Job
from tests.live.journal import api

RATE = 1_000
PULSE_S = 0.05
PAUSE_S = 0.1
"""Between two looks of those who are served."""
REFUSALS = ("message-refused", "command-refused", "job-refused", "refusals-gathered")


async def fill(cell: Cell, name: str) -> str:
    """One gang holds every GPU, so that what is submitted is answered and waits: nothing is started beside a look."""
    whole = Job(name, "exec sleep 3600", hosts=HOSTS, gpus=GPUS, min_runtime="2h", timeout="3h", end="job-cancelled")
    job = await cell.submit(whole)
    await cell.event(job, "attempt-started")
    return job


async def served(cell: Cell, name: str, count: int) -> list[float]:
    """Submissions of `local` one after another: the seconds until each was answered, sorted. Each is cancelled then."""
    ears = await Ears.at(cell, cell.subjects.answer("local", 0).rpartition(".")[0] + ".*")
    took = []
    for number in range(count):
        body = cell.body(job := Job(f"{name}-{number}", min_runtime="0s", end=""))
        cell.jobs[job.id] = job
        began = time.monotonic()
        subject = cell.subjects.answer("local", await cell.send("submit-job", body))
        answer = json.loads((await ears.next(lambda message, subject=subject: message.subject == subject)).data)
        took.append(time.monotonic() - began)
        assert answer["outcome"] == "accepted", answer
        await cell.cancel(job.id)
        await asyncio.sleep(PAUSE_S)
    return sorted(took)


async def flood(cell: Cell, seconds: float, repeated: bytes) -> int:
    """A thousand commands a second by `ci`, unasked for what became of them; how many."""
    kinds = (
        ("submit-job", repeated),
        ("cancel-job", b'{"job": "job-aaaaaaaaaaaaaaaaaaaa"}'),
        ("submit-job", repeated),
        ("cancel-job", b"\xff not JSON"),
    )
    sent, began = 0, time.monotonic()
    while sent < RATE * seconds:
        for _ in range(int(RATE * PULSE_S)):
            verb, body = kinds[sent % len(kinds)]
            await cell.client.publish(cell.subjects.command("ci", verb), body)
            sent += 1
        await asyncio.sleep(max(0.0, began + sent / RATE - time.monotonic()))
    return sent


async def until_answered(cell: Cell, account: str) -> None:
    """Returns once the log has the answer to the last command in the account's inbox, which is admission's."""
    stream = cell.subjects.inbox_stream(account)
    last = int((await api(cell.client, f"STREAM.INFO.{stream}"))["state"]["last_seq"])

    async def is_answered() -> bool:
        await cell.journal.read()
        return cell.journal.oracle.answered["admission", stream][-1] >= last

    await eventually(is_answered, f"command {last} of {account} is answered", limit_s=300)


def p99(took: list[float]) -> float:
    """Of sorted lengths; of fewer than a hundred the longest."""
    return took[min(len(took) - 1, len(took) * 99 // 100)]
