"""Hostile contracts, through the command line's reading of a file and through admission's edge."""

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from fairlease.admission import edge as admission_edge
from fairlease.cli import output, parser, verbs
from fairlease.cli.exits import CONTRACT, OK, CommandError
from fairlease.cli.submission import read_submission
from fairlease.runtime import edge
from fairlease.runtime.bus import Message
from fairlease_schemas.commands import SubmitJob
from fairlease_schemas.envelope import Answer, Misshapen, Submitted, Unreadable
from tests.hostile.corpus import MOST_BYTES, MOST_CPU_S, Entry, cost, entries, hidden_in, made
from tests.hostile.counted import CORPUS, Bill
from tests.house.tree import ROOT, report

Recorder = Callable[[str, object], None]
GOOD: dict[str, Any] = {
    "apiVersion": "fairlease/v1",
    "kind": "Job",
    "spec": {"budget": "team-a", "min_runtime": "30m", "timeout": "1h", "command": ["true"]},
}
WRONG_TYPES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**17,
    "",
    "\u202e\u001b[2J",
    [],
    [[]],
    {},
    {"a": {}},
    [None],
    "9" * 500,
)
WORDS = parser.parse(["submit", "job.yaml", "--request-id", "r1"], verbs.build())


# the two doors ---------------------------------------------------------------------------------------
def typed(path: Path, *, is_data: bool = False) -> tuple[int, str]:
    """What `fairlease submit FILE` reads before it asks any cell: exit code, and what it prints on standard error.

    The words of the command line are parsed once; a test below starts whole processes.
    """
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            read_submission(argparse.Namespace(**{**vars(WORDS), "file": str(path)}))
        except CommandError as error:
            output.report(error, is_data=is_data)
            return error.code, err.getvalue()
    return OK, err.getvalue()


def sent(contract: bytes, request_id: bytes = b'"r1"') -> tuple[Submitted | Misshapen | Unreadable, bytes]:
    """The contract as a client would send it, as admission reads it; and the body that would be stored."""
    data = b'{"type":"submit-job","request_id":' + request_id + b',"contract":' + contract + b"}"
    message = Message("FL_LAB_INBOX_ann", 1, 1, "fl.lab.cmd.ann.submit-job", data)
    said = edge.read_said(message)
    return admission_edge.read_submission(message, said) if isinstance(said, SubmitJob) else (said, b"")


def put(at: str, value: object) -> dict[str, Any]:
    """The good contract with this value at that path."""
    contract: dict[str, Any] = json.loads(json.dumps(GOOD))
    *around, last = at.split(".")
    block = contract
    for part in around:
        block = block.setdefault(part, {})
    block[last] = value
    return contract


# what must hold of each -------------------------------------------------------------------------------
def file_findings(path: Path, raw: bytes, entry: Entry, bill: Bill) -> Iterator[str]:
    """What is wrong with how the command line takes this file."""
    path.write_bytes(raw)
    # Up to 16 KiB at once; beyond by the size, for the reader of YAML is a slow one. A few entries say what they take.
    most_s = MOST_CPU_S + max(0, min(len(raw), 64 * 1024) - 16 * 1024) / 1024 * 0.004
    # A file between these two sizes is bounded by its size, and the worst of them are whole processes below.
    is_traced = "at" not in entry and not 4_096 < len(raw) <= 65_536
    most_s = entry.get("most_ms", 0) / 1000 or most_s
    (code, err), costs = cost(lambda: typed(path), most_s, is_traced=is_traced, bill=bill, name=entry["name"])
    yield from costs
    if hidden := hidden_in(err):
        yield f"prints {sorted(hidden)}"
    if code != (OK if entry["verdict"] == "accepted" else CONTRACT):
        yield f"ends with {code}: {err[:200]}"
    if entry["verdict"] == "refused":
        if entry.get("says", "") not in err:
            yield f"does not say {entry['says']!r}: {err[:200]}"
        if f"{path}:" not in err and "the contract has" not in err:
            yield f"does not say where: {err[:200]}"
        code, err = typed(path, is_data=True)
        told = json.loads(err or "{}")
        if code != CONTRACT or not (told.get("problems") or told.get("way_out")) or hidden_in(err):
            yield f"says as data {err[:200]}"


def wire_findings(contract: bytes, entry: Entry, bill: Bill) -> Iterator[str]:
    """What is wrong with how admission's edge takes this contract."""
    (said, body), costs = cost(lambda: sent(contract), bill=bill, name=entry["name"])
    yield from costs
    answer = Answer(stream="FL_LAB_INBOX_ann", seq=1, time_ms=1, who="ann", said=said)
    if hidden := hidden_in(msgspec.json.encode(answer).decode()):
        yield f"records {sorted(hidden)}"
    if isinstance(said, Submitted):
        if entry["verdict"] == "refused":
            yield "is submitted"
        return
    if entry["verdict"] == "accepted":
        yield f"is refused: {said}"
    if body:
        yield "is stored"
    if isinstance(said, Unreadable):
        if not said.error:
            yield "is unreadable, and nobody says why"
        return
    if not said.problems or not all(one.field and one.rule and one.way_out for one in said.problems):
        yield f"names no field, rule or way out: {said.problems}"
    if entry.get("rule") and entry["rule"] not in {one.rule for one in said.problems}:
        yield f"does not name rule {entry['rule']}: {said.problems}"


# the corpora ------------------------------------------------------------------------------------------
def test_files_of_contracts_are_refused_or_harmless(tmp_path: Path, record_property: Recorder) -> None:
    corpus, bill = entries("contract_files.jsonl"), Bill()
    typed(tmp_path / "warms-up.yaml")
    report(
        [
            f"{entry['name']}: {finding}"
            for entry in corpus
            for finding in file_findings(tmp_path / "job.yaml", made(entry), entry, bill)
        ]
    )
    harmless = sum(entry["verdict"] == "accepted" for entry in corpus)
    record_property(CORPUS, f"{len(corpus)} hostile files of contracts, {harmless} of them harmless: {bill.told()}")
    assert len(corpus) >= 190


def test_values_of_contracts_are_refused_or_harmless_by_both_doors(tmp_path: Path, record_property: Recorder) -> None:
    corpus, bill = entries("contract_values.jsonl"), Bill()
    sent(json.dumps(GOOD).encode())
    findings = []
    for entry in corpus:
        raw = json.dumps(put(entry["at"], entry["value"])).encode()
        findings += [
            f"{entry['name']}: by file: {one}" for one in file_findings(tmp_path / "job.yaml", raw, entry, bill)
        ]
        findings += [f"{entry['name']}: by wire: {one}" for one in wire_findings(raw, entry, bill)]
    report(findings)
    record_property(CORPUS, f"{len(corpus)} hostile values of contracts, by two doors: {bill.told()}")
    assert len(corpus) >= 350


def test_places_for_checkpoints_are_refused_or_harmless_by_both_doors(
    tmp_path: Path, record_property: Recorder
) -> None:
    # rule: 1.7
    corpus, bill = entries("checkpoint_uris.jsonl"), Bill()
    sent(json.dumps(GOOD).encode())
    findings = []
    for entry in corpus:
        value = {"uri": made(entry).decode("utf-8", "surrogatepass")}
        raw = json.dumps(put("spec.checkpoint", value)).encode()
        findings += [
            f"{entry['name']}: by file: {one}" for one in file_findings(tmp_path / "job.yaml", raw, entry, bill)
        ]
        findings += [f"{entry['name']}: by wire: {one}" for one in wire_findings(raw, entry, bill)]
    report(findings)
    record_property(CORPUS, f"{len(corpus)} hostile places for checkpoints, by two doors: {bill.told()}")
    assert len(corpus) >= 190


def test_the_wrong_type_in_any_field_is_told_or_harmless(record_property: Recorder) -> None:
    """Every key of the schema, and one more in each block, with every value of a wrong kind."""
    schema = json.loads((ROOT / "schemas/json/contract.schema.json").read_text(encoding="utf-8"))
    sent(json.dumps(GOOD).encode())
    findings, count, bill = [], 0, Bill()
    for at in (*paths(schema, schema), "spec.priority", "metadata.uid", "owner", "spec.checkpoint.path"):
        for value in WRONG_TYPES:
            count += 1
            raw = json.dumps(put(at, value)).encode()
            verdict = "accepted" if at in MAY_HOLD.get(json.dumps(value), ()) else "refused"
            entry: Entry = {"verdict": verdict, "name": at}
            findings += [f"{at} = {value!r}: {one}" for one in wire_findings(raw, entry, bill)]
    report(findings)
    record_property(CORPUS, f"{count} wrong types in {count // len(WRONG_TYPES)} fields: {bill.told()}")
    assert count >= 500


MAY_HOLD = {
    "null": {
        *(
            f"spec.{name}"
            for name in ("cpu_per_host", "memory_per_host", "disk_per_host", "pools", "constraints", "state")
        ),
        *(f"spec.{name}" for name in ("lane", "array", "evaluation", "image", "source", "start_limit")),
        *(f"spec.state.{name}" for name in ("commit", "data", "model", "runtime", "world_size", "rng")),
        *("spec.constraints.min_gpu_memory", "spec.checkpoint.uri", "spec.checkpoint.interval"),
    },
    "{}": {
        *("metadata", "spec.constraints", "spec.constraints.labels", "spec.checkpoint", "spec.state"),
        *("spec.labels", "spec.env", "spec.secrets"),
    },
    "[]": {"spec.constraints.gpu_model", "spec.after"},
    "true": {"spec.constraints.same_block", "spec.resumable"},
    json.dumps("9" * 500): {"spec.image"},
}
"""Where a value is of no wrong kind: by the value, the fields that take it."""


def paths(schema: dict[str, Any], block: dict[str, Any], lead: str = "") -> Iterator[str]:
    """Every key of the schema and of the blocks in it."""
    for name, field in block.get("properties", {}).items():
        yield lead + name
        for inner in (field, *field.get("anyOf", ()), *field.get("allOf", ())):
            if "$ref" in inner:
                yield from paths(schema, schema["$defs"][inner["$ref"].rpartition("/")[2]], f"{lead}{name}.")


# the real process -------------------------------------------------------------------------------------
BOMBS = ("a million keys", "a ten-megabyte integer", "fifty thousand opening brackets", "nine doublings by alias")


def test_the_worst_files_take_no_more_memory_than_a_plain_one(tmp_path: Path) -> None:
    """Of whole processes, by what the kernel says they had at most."""
    worst = {entry["name"]: made(entry) for entry in entries("contract_files.jsonl") if entry["name"] in BOMBS}
    assert len(worst) == len(BOMBS)
    plain = peak_bytes(tmp_path / "job.json", json.dumps(GOOD).encode(), OK)
    report(
        [
            f"{name}: {more >> 20} MiB more than a plain contract"
            for name, raw in worst.items()
            if (more := peak_bytes(tmp_path / "job.yaml", raw, CONTRACT) - plain) >= MOST_BYTES
        ]
    )


def peak_bytes(path: Path, raw: bytes, code: int) -> int:
    """The most memory that `fairlease submit` had of this file."""
    path.write_bytes(raw)
    words = [sys.executable, "-m", "fairlease", "submit", str(path), "--request-id", "r", "--dry-run"]
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    pid = os.posix_spawn(
        sys.executable, words, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, file_actions=nowhere
    )
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == code
    return usage.ru_maxrss * 1024
