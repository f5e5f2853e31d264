import pytest

from fairlease.cli.exits import TERMINAL, Finding, exit_code


@pytest.mark.parametrize(
    ("state", "end", "own", "code"),
    [
        pytest.param("succeeded", "succeeded", 0, 0, id="success is 0"),
        pytest.param("succeeded", "", None, 0, id="success is 0 also where nobody saw the code"),
        pytest.param("failed", "failed", 7, 7, id="a failure is the job's own code"),
        pytest.param("failed", "failed", 137, 137, id="a signal is 128 + n"),
        pytest.param("failed", "failed", -9, 137, id="a signal as Python says it is 128 + n too"),
        pytest.param("failed", "failed", 0, 1, id="a failure never looks like success"),
        pytest.param("failed", "failed", None, 1, id="a failure without a code"),
        pytest.param("failed", "failed", 256, 1, id="a code that would wrap round to 0"),
        pytest.param("failed", "failed", 255, 255, id="the greatest code"),
        pytest.param("failed", "failed", 200, 200, id="a job's own code may equal one of ours"),
        pytest.param("cancelled", "cancelled", 143, 201, id="cancelled, whatever TERM left behind"),
        pytest.param("cancelled", "cancelled", 0, 201, id="cancelled, although the job left with 0"),
        pytest.param("cancelled", "", None, 201, id="cancelled while it waited"),
        pytest.param("timed-out", "timed-out", 143, 202, id="timed out"),
        pytest.param("failed", "timed-out", 143, 202, id="an end by time-out that failed the job"),
        pytest.param("failed", "preempted", 143, 203, id="preempted and not resumable"),
        pytest.param("failed", "lost", None, 204, id="lost"),
        pytest.param("failed", "fault", 1, 204, id="a fault is not the job's failure"),
        pytest.param("failed", "resume-refused", None, 205, id="resume refused"),
        pytest.param("failed", "start-failed", None, 206, id="never started"),
    ],
)
def test_the_exit_code_follows_the_state(state: str, end: str, own: int | None, code: int) -> None:
    assert state in TERMINAL
    assert exit_code(state, end, own) == code


@pytest.mark.parametrize(
    ("finding", "sentence"),
    [
        (
            Finding("spec.hosts", "1.2", "0", ">= 1", "write more", "a.yaml", 3, 5),
            "a.yaml:3:5: spec.hosts '0' (rule 1.2, >= 1): write more",
        ),
        (Finding("", way_out="write one", file="a.yaml", line=1, column=1), "a.yaml:1:1: write one"),
        (
            Finding("spec.budget (--budget)", "1.1", way_out="required: write it"),
            "spec.budget (--budget) (rule 1.1): required: write it",
        ),
        (Finding("host", value="h-1"), "host 'h-1'"),
    ],
)
def test_a_finding_says_place_field_value_rule_and_way_out(finding: Finding, sentence: str) -> None:
    assert finding.sentence() == sentence
