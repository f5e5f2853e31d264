"""Examples of every message and contract, and the catalogue of events: what the pages are made from.

The surprising choice: no example is printed as it stands here. Each is decoded into its type and written
canonically from there, so that a page cannot show what the code would refuse.
"""

import json
from typing import Any, Final, NamedTuple, get_args

import msgspec

from fairlease_schemas import codec, envelope
from fairlease_schemas.contract import Contract, body, read_contract, scheduling_fields
from fairlease_schemas.envelope import Event, Record
from fairlease_schemas.ids import attempt_id, job_id
from fairlease_schemas.policy import Policy
from fairlease_schemas.subjects import Subjects


def job_of(spec: str, name: str = "") -> dict[str, Any]:
    """A contract as people write it, with this spec in JSON."""
    named = {"metadata": {"name": name}} if name else {}
    return {"apiVersion": "fairlease/v1", "kind": "Job", **named, "spec": json.loads(spec)}


def contract_of(data: dict[str, Any]) -> Contract:
    """An example as a contract; an assertion fails when it is none."""
    contract, problems = read_contract(data)
    assert contract is not None, problems
    return contract


TRAINING: Final = job_of(
    """{"budget": "vision", "hosts": 2, "gpus_per_host": 8, "pools": ["h100"], "min_runtime": "2h", "timeout": "24h",
    "on_timeout": "requeue", "checkpoint": {"grace": "2m"}, "max_retries": 3,
    "command": ["python", "train.py", "--config", "7b.toml"], "env": {"NCCL_DEBUG": "WARN"}}""",
    name="pretrain-7b",
)
IDLE: Final = job_of(
    """{"budget": "vision", "min_runtime": "0s", "timeout": "6h", "command": ["python", "sweep.py"]}"""
)
DEBUG: Final = job_of(
    """{"budget": "speech", "min_runtime": "10m", "timeout": "30m", "lane": "debug", "command": ["pytest", "-x"]}"""
)
WHOLE: Final = job_of(
    """{"budget": "speech", "min_runtime": "3h", "timeout": "3h", "resumable": false, "command": ["./evaluate.sh"]}"""
)
SWEEP: Final = job_of(
    """{"budget": "vision", "gpus_per_host": 2, "cpu_per_host": 16, "memory_per_host": "128Gi",
    "constraints": {"gpu_model": ["H100", "H200"], "min_gpu_memory": "79Gi", "labels": {"zone": "a"}},
    "min_runtime": "30m", "timeout": "6h",
    "checkpoint": {"uri": "s3://vision/sweep", "interval": "10m", "signal": "USR1"},
    "state": {"commit": "5f1c0e8", "world_size": 2}, "array": {"count": 40, "parallel": 8},
    "after": [{"job": "job-edi5652ruja532szcibj", "when": "any"}], "evaluation": "mmlu-2026", "labels": {"team": "x"},
    "command": ["python", "sweep.py"], "secrets": {"WANDB_API_KEY": "secret:wandb"},
    "source": {"repo": "https://git.example.org/vision/train", "commit": "0123456789abcdef0123456789abcdef01234567"}}"""
)
REFUSED: Final = job_of(
    """{"budget": "vision", "hosts": 0, "gpus": 8, "min_runtime": "30", "command": ["python", "train.py"]}"""
)
_JOB: Final = job_id("ann", "vision", "pretrain-7b-1")
CONTRACT: Final = contract_of(TRAINING)
SAMPLES: Final[dict[str, Any]] = {
    "job": _JOB,
    "claim": _JOB,
    "attempt": attempt_id(_JOB, 1),
    "digest": codec.digest(body(CONTRACT)),
    "request": msgspec.to_builtins(scheduling_fields(CONTRACT)),
    "policy": msgspec.to_builtins(Policy(lookback_ms=259_200_000)),
    "stream": Subjects("lab").inbox_stream("ann"),
    "sha256": "ab" * 32,
    "log_digest": "ab" * 32,
    "change": "ef" * 32,
    **json.loads("""{
    "account": "ann", "author": "lead", "owner": "carol", "budget": "vision", "request_id": "pretrain-7b-1",
    "host": "host-1", "hosts": ["host-1", "host-2"], "pool": "h100", "incarnation": "boot-8c1f", "kind": "cordon",
    "subject": "vision/h100/2x8/7200000ms", "code": "capacity", "licence": "under-share", "end": "failed",
    "role": "member", "evaluation": "mmlu-2026", "outcome": "passed", "start_in_ms": 7320000, "latest_in_ms": 7170000,
    "why": "expired", "missing": "cycle-closed", "name": "short-lookback", "verb": "cancel-job", "seq": 4, "size": 9,
    "error": "JSON is malformed: invalid character (byte 0)", "weight": 3, "cycle": 7, "number": 1,
    "for_ms": 120000, "grace_ms": 120000, "window_ms": 7200000, "held_gpu_ms": 57600000, "charged_gpu_ms": 57600000,
    "proposal": "wider-margin", "position": 812, "source": "log", "span_ms": 604800000,
    "changes": [{"type": "change-budget", "budget": "vision", "weight": 4}],
    "before": {"windows_broken": 0, "loops": 0, "promises_broken": 0, "fulfilment_permille": 981},
    "after": {"windows_broken": 0, "loops": 0, "promises_broken": 0, "fulfilment_permille": 988},
    "seqs": [4, 5, 6, 7, 8, 9, 11, 12, 13], "left": 2, "empty_in_ms": 3660000, "limit_gpus": 100, "held_gpus": 96,
    "lost_gpu_ms": 5400000, "silent_ms": 135000, "attempts": ["job-edi5652ruja532szcibj-a1"],
    "parts": [{"host": "host-1", "gpus": [0,1,2,3,4,5,6,7]}, {"host": "host-2", "gpus": [0,1,2,3,4,5,6,7]}],
    "inventory": {"pool": "h100", "gpus": ["GPU-5f1c0e8a-0001", "GPU-5f1c0e8a-0002"], "model": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81559, "cpu_cores": 96, "host_memory_mib": 1048576, "block": "block-01/rack-03"},
    "evidence": {"pool": "h100", "needed_gpus": 16, "needed_hosts": 2, "free_gpus": 8, "whole_free_hosts": 1,
        "largest_hole_gpus": 8},
    "problems": [{"field": "spec.min_runtime", "rule": "1.4", "value": "10h", "limit": "15m to 8h for 16 GPUs",
        "way_out": "0s makes it idle work: free, and preemptible at once"}]
    }"""),
}
"""What a required field holds in an example, by its name."""
SHOWN: Final[dict[str, dict[str, Any]]] = json.loads("""{
    "command-refused": {"problems": [{"field": "job", "rule": "1.1", "value": "job-none", "way_out": "see the queue"}]},
    "attempt-ending": {"end": "cancelled"}, "part-gone": {"exit_code": 1}, "attempt-ended": {"exit_code": 1},
    "job-requeued": {"backoff_ms": 30000, "counts_as_retry": true}, "job-failed": {"exit_code": 1},
    "budget-changed": {"parent": "research", "reason": "the new cluster"}, "host-held": {"reason": "noisy fan"},
    "cycle-ranked": {"classes": 1, "pools": [{"pool": "h100", "schedulable_gpus": 32,
        "nodes": [{"budget": "speech", "weight": 1, "entitled_gpu_ms": 691200000, "used_gpu_ms": 86400000},
            {"budget": "vision", "weight": 3, "entitled_gpu_ms": 2073600000, "promised_gpu_ms": 115200000}],
        "leaves": [{"key": "vision/h100/2x8/7200000ms", "budget": "vision", "hosts": 2, "gpus_per_host": 8,
            "min_runtime_ms": 7200000, "count": 3}]}]},
    "cycle-placed": {"claims": [{"job": "job-edi5652ruja532szcibj", "pool": "h100", "licence": "under-share",
        "key": "vision/h100/2x8/7200000ms"}]},
    "change-simulated": {"report": "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"},
    "change-withdrawn": {"why": "stale"},
    "evaluation-recorded": {"score_permille": 873},
    "job-held": {"reason": "wait for the new data"}, "promise-ended": {"why": "host-held", "cause": "1-77-0"},
    "eviction-ordered": {"attempt": "job-wq3vmbwq2vplyxhtr4aa-a2", "grace_ms": 30000}
}""")
"""What an example shows besides the required fields, or in place of their samples, by tag."""
CATALOGUE: Final = """
# A job's life
job-admitted | admission | the job exists and waits, for other jobs first if blocked; its place is this event's address
job-refused | admission | nothing changes but the inbox cursor; the request id stays free
command-refused | admission ledger health | nothing changes but the cursor of that stream
message-refused | admission ledger health | nothing changes but the cursor of that stream
refusals-gathered | admission ledger health | nothing changes but the cursor of that stream
part-ready | admission | one more host of the gang is ready; when all are, their orders say go
attempt-started | admission | one more host of the attempt runs; when all do, the job is `running`
attempt-ending | admission | the job is `stopping`, and so say its hosts' orders; the first ask's grace stands
checkpoint-confirmed | admission | what an eviction would lose of the attempt counts from this log time
part-gone | admission | this host's part is gone; the attempt holds its GPUs until every part is
attempt-ended | admission | the attempt is over, its GPUs are free, and its charge is owed
job-requeued | admission | the job waits at its old place; with a backoff, not before `job-released`
job-released | admission | the job waits at its old place
job-unblocked | admission | the job waits at the place of its admission
job-held | admission | the job is `held`; a grant on its way to it is stillborn
job-hold-cleared | admission | the job waits at its old place, or goes on waiting for what the event says
job-succeeded | admission | the job is over: `succeeded`
job-failed | admission | the job is over: `failed`
job-cancelled | admission | the job is over: `cancelled`
job-timed-out | admission | the job is over: `timed-out`
# Evaluations
evaluation-recorded | admission | this is the evaluation's outcome in this budget, until the next one
# Budgets and policy
budget-changed | ledger | a new piece of the tree begins at this log time; older ones stay for the lookback
budget-member-changed | ledger | the account has this role in the budget and all below it, and no other
attempt-charged | ledger | the attempt's charge is no longer owed
policy-changed | ledger | every later decision follows this policy and names it
change-proposed | ledger | the proposal is open; nothing else changes
change-simulated | ledger | the proposal may be accepted by this report
change-forced | ledger | the proposal may be accepted by a second person, without a report
change-accepted | ledger | the proposal is over; its changes are the events that follow
change-withdrawn | ledger | the proposal is over; nothing else changes
# Hosts
host-registered | health | the host and its GPUs are known under these facts; its holds stay
host-held | health | the host takes no new work; what runs there goes on
host-hold-cleared | health | this hold is gone; the host takes new work once no hold is left
drain-planned | health | the host will be emptied: it takes only what is gone before the start, or waits in the queue
drain-progress | health | the owner was told how many attempts are left, and until when
drain-completed | health | nothing is left on the host; its owner's hold stays
drain-cancelled | health | the drain is over as if it had not been asked for
breaker-tripped | health | this host was not held by itself, and no other of the pool is for a while: somebody must look
lease-lost | health | the attempts named are over on this host; admission ends their parts and frees the GPUs
# The cycle
cycle-ranked | ranker | the cycle is open and awaits placement, which walks exactly these numbers
gang-granted | placement | the GPUs are held; window and time-out run from here (never ordered if the job is over)
cycle-placed | placement | the cycle awaits preemption
eviction-ordered | preemption | the attempt is `stopping` for that claim, and so say its hosts' orders
reservation-made | preemption | nobody else is placed there until the grant, the end of the time, or of the wait
reservation-ended | preemption | the hosts are open again
promise-made | preemption | what would stay there beyond the start is not placed on these hosts; it counts as promised
promise-ended | preemption | the hosts are open again, or promised anew
cycle-closed | preemption | the cycle is over
cycle-abandoned | ranker | the cycle is over; the grants it wrote stand
# Reasons
reason-began | placement admission | the reason is in force; it replaces that service's one before
reason-ended | placement admission | the subject has no reason by this service
"""
"""Every event under its heading: tag, who writes it, and what the fold makes of it."""


class Entry(NamedTuple):
    """An event in the catalogue."""

    section: str
    cls: type[Any]
    by: tuple[str, ...]
    fold: str
    example: Event


def entries() -> list[Entry]:
    """The catalogue, in its order; an assertion fails for an event that is missing, or a field without a sample."""
    classes = {tag_of(cls): cls for cls in get_args(Event)}
    found, section = [], ""
    for line in CATALOGUE.strip().splitlines():
        if line.startswith("# "):
            section = line[2:]
            continue
        tag, services, fold = line.split(" | ")
        values = {"type": tag, **SHOWN.get(tag, {})}
        for field in msgspec.structs.fields(classes[tag]):
            if field.required and field.name not in values:
                assert field.name in SAMPLES, f"{tag}.{field.name}: add an example value to SAMPLES"
                values[field.name] = SAMPLES[field.name]
        example: Event = msgspec.convert(values, type=Event)
        found.append(Entry(section, classes[tag], tuple(services.split()), fold + ".", example))
    assert {entry.cls for entry in found} == set(classes.values()), "CATALOGUE misses an event"
    return found


def tag_of(cls: type[Any]) -> str:
    """The tag on the wire; empty for a value that has none."""
    return str(cls.__struct_config__.tag or "")


def example_record() -> bytes:
    """One whole record: an admission that answers a submission."""
    said = {"type": "submitted", **{key: SAMPLES[key] for key in ("budget", "request_id", "digest", "request")}}
    answer = {"stream": SAMPLES["stream"], "seq": 4, "time_ms": 1_764_403_200_125, "who": "ann", "said": said}
    record = {"v": envelope.RECORD_VERSION, "at_ms": answer["time_ms"], "by": "admission", "policy": "default"}
    record |= {"epoch": 1, "basis": 41, "causes": [(1, 1, 0)], "answers": [answer]}
    record["events"] = [msgspec.to_builtins(entries()[0].example)]
    data = codec.sealed(msgspec.convert(record, type=Record))[1]
    assert codec.sealed(codec.read_record(data))[1] == data
    return data
