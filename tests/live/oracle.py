"""What must hold on any log, judged from its JSON alone: a slow and simple second opinion.

Nothing of the fold, the deciders or the schemas is used, so that a slip there is not repeated here.
Each finding names its position. `rest` adds what must hold when every job is over.
"""

import hashlib
import json
from typing import Any

TERMINAL = frozenset(("job-succeeded", "job-failed", "job-cancelled", "job-timed-out"))
SCOPE = {
    "admission": "intake",
    "ledger": "intake",
    "ranker": "alloc",
    "placement": "alloc",
    "preemption": "alloc",
    "health": "alloc",
}
OWNER = {
    "submit-job": "admission",
    "cancel-job": "admission",
    "hold-job": "admission",
    "release-job": "admission",
    "record-evaluation": "admission",
    "change-budget": "ledger",
    "change-member": "ledger",
    "change-policy": "ledger",
    "propose-change": "ledger",
    "report-change": "ledger",
    "accept-change": "ledger",
    "cordon-host": "health",
    "return-host": "health",
    "request-drain": "health",
    "undrain-host": "health",
    "host-up": "health",
    "run-ready": "admission",
    "run-started": "admission",
    "run-gone": "admission",
    "checkpoint-done": "admission",
}
STEPS = TERMINAL | {
    "job-admitted",
    "gang-granted",
    "eviction-ordered",
    "attempt-started",
    "attempt-ending",
    "attempt-ended",
    "job-requeued",
    "job-released",
    "job-unblocked",
    "job-held",
    "job-hold-cleared",
}
HOST_NEWS = {
    "host-registered",
    "host-held",
    "host-hold-cleared",
    "lease-lost",
    "drain-planned",
    "drain-progress",
    "drain-completed",
    "drain-cancelled",
}


class Job:
    """A job as the log tells it."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.budget: str = event["budget"]
        self.request: dict[str, Any] = event["request"]
        self.state = "waiting"
        self.over_at = 0
        self.attempts: list[str] = []
        self.caused_gpu_ms = 0

    @property
    def is_idle(self) -> bool:
        return not self.request.get("min_runtime_ms", 0)


class Attempt:
    """An attempt as the log tells it; `over_at` is the position of its end, `over_ms` its log time."""

    def __init__(self, job: str, event: dict[str, Any], position: int, index: int, at_ms: int) -> None:
        self.job = job
        self.parts = {part["host"]: tuple(part["gpus"]) for part in event["parts"]}
        self.token = (position, index)
        self.granted_ms = at_ms
        self.window_ends_ms = at_ms + event.get("window_ms", 0)
        self.caused_gpu_ms = 0
        self.ready: set[str] = set()
        self.started: set[str] = set()
        self.gone: dict[str, dict[str, Any]] = {}
        self.lost: set[str] = set()
        self.is_stillborn = False
        self.is_stopping = False
        self.over_at = 0
        self.over_ms = 0
        self.held_gpu_ms = 0
        self.saved_ms = at_ms
        self.credit_gpu_ms = 0
        self.charges = 0

    @property
    def gpus(self) -> int:
        return sum(len(gpus) for gpus in self.parts.values())


class Oracle:
    """`see` every record in order; `findings` says what was wrong."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        self.answered: dict[tuple[str, str], list[int]] = {}
        self.expected_feed: set[str] = set()
        self._hosts: dict[str, int] = {}
        self.holds: dict[str, set[tuple[str, str]]] = {}
        self._held: dict[tuple[str, int], str] = {}
        self._ids: set[str] = set()
        self._last: dict[str, int] = {}
        self._overtaken: dict[str, int] = {}
        self._cycle, self._stage = 0, "closed"
        self._position, self._now_ms, self._basis = 0, 0, 0

    def see(self, record: dict[str, Any]) -> None:
        self._position += 1
        self._now_ms = max(self._now_ms, record["at_ms"])
        self._basis = record["basis"]
        scope = SCOPE[record["by"]]
        if not self._last.get(scope, 0) <= self._basis < self._position:
            self._wrong(f"decided at {self._basis}, and {scope} was written at {self._last.get(scope)}")
        self._last[scope] = self._position
        self._check_id(record)
        for answer in record["answers"]:
            self._check_answer(record, answer)
        for index, event in enumerate(record["events"]):
            tag = event["type"]
            if tag in STEPS | HOST_NEWS:
                self.expected_feed.add(f"{record['epoch']}-{self._position}-{index}")
            found = getattr(self, "_see_" + tag.replace("-", "_"), None)
            if found is not None:
                found(event, index)
            elif tag in TERMINAL:
                self._see_end(event)
        if record["by"] == "admission":
            self._check_overtaken()

    def rest(self) -> list[str]:
        """What is wrong when nothing runs and nothing waits any more."""
        wrong = [f"GPU {host}/{gpu} is still held by {name}" for (host, gpu), name in self._held.items()]
        wrong += [f"{name} never ended, it is {job.state}" for name, job in self.jobs.items() if not job.over_at]
        wrong += [f"{name} was charged {a.charges} times" for name, a in self.attempts.items() if a.charges != 1]
        return wrong

    def _wrong(self, text: str) -> None:
        self.findings.append(f"position {self._position}: {text}")

    # the envelope ------------------------------------------------------------------------------------
    def _check_id(self, record: dict[str, Any]) -> None:
        rest = {key: value for key, value in record.items() if key != "id"}
        data = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if hashlib.sha256(data).hexdigest() != record["id"]:
            self._wrong("its id is not the digest of the rest")
        if record["id"] in self._ids:
            self._wrong(f"record {record['id']} stands here for the second time")
        self._ids.add(record["id"])

    def _check_answer(self, record: dict[str, Any], answer: dict[str, Any]) -> None:
        stream, seq = answer["stream"], answer["seq"]
        sequences = self.answered.setdefault((record["by"], stream), [])
        if sequences and sequences[-1] >= seq:
            self._wrong(f"{record['by']} answers {stream} {seq} after {sequences[-1]}")
        sequences.append(seq)
        if "_INBOX_" in stream:
            self.expected_feed.add(f"{record['epoch']}-{self._position}-answer-{answer['who']}-{seq}")

    def _check_overtaken(self) -> None:
        """A grant that a cancel did not know of is asked to stop by the first record that knows of both."""
        for name, since in list(self._overtaken.items()):
            attempt = self.attempts[name]
            if attempt.over_at or attempt.is_stopping:
                del self._overtaken[name]
            elif self._basis >= since:
                self._wrong(f"{name} runs on, and its job is over since {since}")

    # hosts and GPUs ----------------------------------------------------------------------------------
    def _see_host_registered(self, event: dict[str, Any], _index: int) -> None:
        self._hosts[event["host"]] = len(event["inventory"]["gpus"])

    def _see_host_held(self, event: dict[str, Any], _index: int) -> None:
        self.holds.setdefault(event["host"], set()).add((event["owner"], event["kind"]))

    def _see_host_hold_cleared(self, event: dict[str, Any], _index: int) -> None:
        self.holds[event["host"]].discard((event["owner"], event["kind"]))

    def _see_lease_lost(self, event: dict[str, Any], _index: int) -> None:
        if not any(kind == "lease" for _, kind in self.holds.get(event["host"], ())):
            self._wrong(f"the lease of {event['host']} is lost, and nothing keeps new work from it")
        for name in event["attempts"]:
            attempt = self.attempts.get(name)
            if attempt is None or event["host"] not in attempt.parts or event["host"] in attempt.lost:
                self._wrong(f"{name} loses {event['host']}, where it has no part, or for the second time")
            else:
                attempt.lost.add(event["host"])

    def _see_gang_granted(self, event: dict[str, Any], index: int) -> None:
        name, job = event["attempt"], self.jobs.get(event["job"])
        if job is None or name in self.attempts:
            self._wrong(f"{name} is granted to a job that is unknown, or for the second time")
            return
        attempt = self.attempts[name] = Attempt(event["job"], event, self._position, index, self._now_ms)
        if any(not self.attempts[earlier].over_at for earlier in job.attempts):
            self._wrong(f"{name} is granted beside a living attempt")
        if job.over_at:
            attempt.is_stillborn = True
            if job.over_at <= self._basis:
                self._wrong(f"{name} is granted to a job that was known to be over since {job.over_at}")
        elif job.state != "waiting":
            self._wrong(f"{name} is granted to a job that is {job.state}")
        job.attempts.append(name)
        attempt.caused_gpu_ms, job.caused_gpu_ms = job.caused_gpu_ms, 0
        if event["number"] != len(job.attempts):
            self._wrong(f"{name} is number {event['number']} of {len(job.attempts)}")
        shape = [len(gpus) for gpus in attempt.parts.values()]
        if shape != [job.request["gpus_per_host"]] * job.request["hosts"] or len(event["parts"]) != len(shape):
            self._wrong(f"{name} is not whole: {event['parts']}")
        for host, gpus in attempt.parts.items():
            self._take(name, host, gpus)
        if not job.over_at:
            job.state = "granted"

    def _take(self, name: str, host: str, gpus: tuple[int, ...]) -> None:
        if self.holds.get(host):
            self._wrong(f"{name} is granted on {host}, which takes no new work: {self.holds[host]}")
        for gpu in gpus:
            if not 0 <= gpu < self._hosts.get(host, 0):
                self._wrong(f"{name} is granted GPU {gpu} of {host}, which is not registered")
            holder = self._held.setdefault((host, gpu), name)
            if holder != name or gpus.count(gpu) > 1:
                self._wrong(f"{name} is granted GPU {gpu} of {host}, which {holder} holds")

    # an attempt --------------------------------------------------------------------------------------
    def _live(self, event: dict[str, Any]) -> Attempt | None:
        attempt = self.attempts.get(event["attempt"])
        if attempt is None or attempt.over_at:
            self._wrong(f"{event['type']} of {event['attempt']}, which is not alive")
            return None
        if "host" in event and event["host"] not in attempt.parts:
            self._wrong(f"{event['type']} of {event['attempt']} on {event['host']}, where it has no part")
        return attempt

    def _see_part_ready(self, event: dict[str, Any], _index: int) -> None:
        attempt = self._live(event)
        if attempt is None:
            return
        host = event["host"]
        if host in attempt.ready or host in attempt.gone or len(attempt.parts) == 1:
            self._wrong(f"{event['attempt']} is ready on {host} again, after its end, or for nobody")
        if ("rendezvous" in event) != (host == next(iter(attempt.parts))):
            self._wrong(f"{event['attempt']} is to meet by the word of {host}, which is not its first, or by none")
        attempt.ready.add(host)

    def _see_attempt_started(self, event: dict[str, Any], _index: int) -> None:
        attempt = self._live(event)
        if attempt is None:
            return
        if event["host"] in attempt.started or event["host"] in attempt.gone or attempt.is_stillborn:
            self._wrong(f"{event['attempt']} starts on {event['host']} again, or after its end")
        if len(attempt.parts) > 1 and attempt.ready != attempt.parts.keys():
            self._wrong(f"{event['attempt']} starts on {event['host']}, and only {sorted(attempt.ready)} are ready")
        attempt.started.add(event["host"])

    def _see_checkpoint_confirmed(self, event: dict[str, Any], _index: int) -> None:
        attempt = self._live(event)
        if attempt is not None:
            attempt.saved_ms = self._now_ms

    def _see_attempt_ending(self, event: dict[str, Any], _index: int) -> None:
        if self._live(event) is not None:
            self._stopping(event["attempt"])

    def _see_eviction_ordered(self, event: dict[str, Any], _index: int) -> None:
        attempt = self.attempts.get(event["attempt"])
        if attempt is None or 0 < attempt.over_at <= self._basis:
            self._wrong(f"{event['attempt']} is evicted, and was known to be gone")
        elif (
            not self.jobs[attempt.job].is_idle
            and self._now_ms < attempt.window_ends_ms
            and not event.get("is_deadline")  # of a drain: the one named exception
        ):
            self._wrong(f"{event['attempt']} is evicted from its window")
        elif not attempt.over_at:
            self._stopping(event["attempt"])
        claim = self.jobs.get(event["claim"])
        if claim is not None and not claim.over_at:
            claim.caused_gpu_ms += event.get("lost_gpu_ms", 0)

    def _stopping(self, attempt: str) -> None:
        self.attempts[attempt].is_stopping = True
        job = self.jobs[self.attempts[attempt].job]
        if not job.over_at:
            job.state = "stopping"

    def _see_part_gone(self, event: dict[str, Any], _index: int) -> None:
        attempt = self._live(event)
        if attempt is None:
            return
        if event["host"] in attempt.gone:
            self._wrong(f"{event['attempt']} is gone from {event['host']} for the second time")
        attempt.gone[event["host"]] = event

    def _see_attempt_ended(self, event: dict[str, Any], _index: int) -> None:
        attempt = self._live(event)
        if attempt is None:
            return
        if attempt.gone.keys() != attempt.parts.keys() and not (attempt.is_stillborn and not attempt.started):
            self._wrong(f"{event['attempt']} is over, and only {sorted(attempt.gone)} of its parts are gone")
        attempt.over_at, attempt.over_ms = self._position, self._now_ms
        attempt.held_gpu_ms = 0 if attempt.is_stillborn else attempt.gpus * (self._now_ms - attempt.granted_ms)
        if event["end"] == "fault":
            attempt.credit_gpu_ms = min(attempt.held_gpu_ms, attempt.gpus * (self._now_ms - attempt.saved_ms))
        for host, gpus in attempt.parts.items():
            for gpu in gpus:
                if self._held.get((host, gpu)) == event["attempt"]:
                    del self._held[host, gpu]

    def _see_attempt_charged(self, event: dict[str, Any], _index: int) -> None:
        attempt = self.attempts.get(event["attempt"])
        if attempt is None or not attempt.over_at or attempt.charges:
            self._wrong(f"{event['attempt']} is charged twice, or before its end")
            return
        attempt.charges += 1
        paid_gpu_ms = max(attempt.held_gpu_ms, attempt.caused_gpu_ms) - attempt.credit_gpu_ms
        charged = 0 if self.jobs[attempt.job].is_idle else paid_gpu_ms
        if (event["held_gpu_ms"], event["charged_gpu_ms"]) != (attempt.held_gpu_ms, charged):
            self._wrong(f"{event} should say held {attempt.held_gpu_ms} and charged {charged}")

    # a job -------------------------------------------------------------------------------------------
    def _see_job_admitted(self, event: dict[str, Any], _index: int) -> None:
        if event["job"] in self.jobs:
            self._wrong(f"{event['job']} is admitted for the second time")
            return
        self.jobs[event["job"]] = Job(event)

    def _changing(self, event: dict[str, Any]) -> Job | None:
        job = self.jobs.get(event["job"])
        if job is None or job.over_at:
            self._wrong(f"{event['type']} of {event['job']}, which is unknown or over")
            return None
        if job.attempts and not (last := self.attempts[job.attempts[-1]]).over_at:
            if event["type"] == "job-cancelled" and last.token[0] > self._basis:
                self._overtaken[job.attempts[-1]] = self._position
            else:
                self._wrong(f"{event['type']} of {event['job']} while {job.attempts[-1]} lives")
        return job

    def _see_job_requeued(self, event: dict[str, Any], _index: int) -> None:
        job = self._changing(event)
        if job is not None:
            job.state = "backoff" if event.get("backoff_ms") else "waiting"

    def _see_job_released(self, event: dict[str, Any], _index: int) -> None:
        job = self._changing(event)
        if job is None:
            return
        if job.state != "backoff":
            self._wrong(f"{event['job']} is released and was {job.state}")
        job.state = "waiting"

    def _see_end(self, event: dict[str, Any]) -> None:
        job = self._changing(event)
        if job is not None:
            job.over_at, job.state = self._position, event["type"].removeprefix("job-")

    # the cycle ---------------------------------------------------------------------------------------
    def _see_cycle_ranked(self, event: dict[str, Any], _index: int) -> None:
        if self._stage != "closed" or event["cycle"] != self._cycle + 1:
            self._wrong(f"cycle {event['cycle']} begins, and {self._cycle} is {self._stage}")
        self._cycle, self._stage = event["cycle"], "ranked"

    def _see_cycle_placed(self, event: dict[str, Any], _index: int) -> None:
        self._step(event, ("ranked",), "placed")

    def _see_cycle_closed(self, event: dict[str, Any], _index: int) -> None:
        self._step(event, ("placed",), "closed")

    def _see_cycle_abandoned(self, event: dict[str, Any], _index: int) -> None:
        self._step(event, ("ranked", "placed"), "closed")

    def _step(self, event: dict[str, Any], allowed: tuple[str, ...], stage: str) -> None:
        if event["cycle"] != self._cycle or self._stage not in allowed:
            self._wrong(f"{event['type']} of cycle {event['cycle']}, and {self._cycle} is {self._stage}")
        self._stage = stage
