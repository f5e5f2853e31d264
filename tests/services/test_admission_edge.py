"""Admission's edge: what a submission says before anybody decides, and what is never repeated of it."""

import json

import pytest

from fairlease.admission.edge import read_submission
from fairlease.runtime.bus import Message
from fairlease_schemas import codec
from fairlease_schemas.commands import SubmitJob
from fairlease_schemas.envelope import Misshapen, Submitted, Unreadable
from fairlease_schemas.job import Array, Constraints

GITHUB = "ghp_" + "a1" * 18
SPEC = {"budget": "a", "min_runtime": "30m", "timeout": "2h", "command": ["python", "train.py"]}


def read(request_id: str = "r1", **spec: object) -> tuple[Submitted | Misshapen | Unreadable, bytes]:
    contract = json.dumps({"apiVersion": "fairlease/v1", "kind": "Job", "spec": {**SPEC, **spec}})
    message = Message("FL_LAB_INBOX_ann", 1, 1, "fl.lab.cmd.ann.submit-job", contract.encode())
    return read_submission(message, SubmitJob(request_id=request_id, contract=contract.encode()))  # type: ignore[arg-type]  # a Raw is bytes


def test_what_decisions_read_goes_into_the_log_and_the_rest_under_its_digest() -> None:
    # rule: 1.13
    said, body = read(
        labels={"x": "1"},
        env={"LR": "0.1"},
        secrets={"KEY": "secret:wandb"},
        array={"count": 2},
        constraints={"labels": {"zone": "a"}},
    )
    assert isinstance(said, Submitted)
    assert said.request.array == Array(count=2)
    assert said.request.constraints == Constraints(labels={"zone": "a"})
    assert said.digest == codec.digest(json.loads(body))
    log = codec.canonical(said).decode()
    assert [word in log for word in ("zone", "secret:wandb", "LR", "train.py", '"x"')] == [True, *[False] * 4]
    assert b"secret:wandb" in body


@pytest.mark.parametrize(
    ("request_id", "spec"),
    [
        pytest.param("r1", {"env": {"X": GITHUB}}, id="a variable"),
        pytest.param("r1", {"command": ["x", f"--token={GITHUB}"]}, id="an argument"),
        pytest.param("r1", {"budget": GITHUB}, id="the budget"),
        pytest.param("r1", {GITHUB: 1}, id="a key"),
        pytest.param(GITHUB, {}, id="the request id"),
    ],
)
def test_a_secret_is_in_no_record(request_id: str, spec: dict[str, object]) -> None:
    # rule: 1.13
    said, body = read(request_id, **spec)
    assert isinstance(said, Misshapen)
    assert {problem.rule for problem in said.problems} == {"1.13"}
    assert GITHUB[4:] not in codec.canonical(said).decode()
    assert body == b""


def test_the_request_id_of_an_array_leaves_room_for_the_index() -> None:
    # rule: 1.11
    assert isinstance(read("r" * 124, array={"count": 2})[0], Submitted)
    assert isinstance(read("r" * 128)[0], Submitted)
    said, _ = read("r" * 125, array={"count": 2})
    assert isinstance(said, Misshapen)
    assert [(problem.field, problem.rule) for problem in said.problems] == [("request_id", "1.11")]
