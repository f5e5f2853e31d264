import argparse
import io
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlease.cli import parser, verbs
from fairlease.cli.exits import CONTRACT, USAGE, CommandError, Finding
from fairlease.cli.main import main
from fairlease.cli.submission import Submission, read_submission, written_out

GOOD = """\
apiVersion: fairlease/v1
kind: Job
metadata:
  name: train
spec:
  budget: team-a
  hosts: 2
  gpus_per_host: 8
  min_runtime: 1h30m
  timeout: 8h
  checkpoint:
    grace: 1m
  command: [python, train.py]
  env:
    SEED: "1"
"""


def arguments(*words: str) -> argparse.Namespace:
    return parser.parse(["submit", *words], verbs.build())


def submission(tmp_path: Path, text: str, *words: str) -> Submission:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return read_submission(arguments(str(path), *words))


def problems(tmp_path: Path, text: str, *words: str) -> list[Finding]:
    with pytest.raises(CommandError) as caught:
        submission(tmp_path, text, *words)
    assert caught.value.code == CONTRACT
    return [finding._replace(file=Path(finding.file).name) for finding in caught.value.findings]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_file_is_a_submission(tmp_path: Path) -> None:
    found = submission(tmp_path, GOOD, "--request-id", "ci/7")
    assert found.request_id == "ci/7"
    assert (found.contract.spec.hosts, found.contract.spec.min_runtime) == (2, 5_400_000)
    assert found.data["spec"]["min_runtime"] == "1h30m"
    assert found.contract.spec.env == {"SEED": "1"}


def test_json_is_a_contract_too(tmp_path: Path) -> None:
    spec = {"budget": "a", "min_runtime": "0s", "timeout": "1m", "command": ["true"]}
    text = json.dumps({"apiVersion": "fairlease/v1", "kind": "Job", "spec": spec}, indent="\t")
    assert submission(tmp_path, text).contract.spec.budget == "a"


def test_a_request_id_is_drawn_when_none_is_given(tmp_path: Path) -> None:
    drawn = {submission(tmp_path, GOOD).request_id for _ in range(3)}
    assert len(drawn) == 3
    assert all(len(text) == 32 for text in drawn)


@pytest.mark.parametrize("text", ["", " a", "a b", "-a", "ä", "a" * 129, "a\n"])
def test_a_request_id_that_is_none_is_usage(tmp_path: Path, text: str) -> None:
    with pytest.raises(CommandError) as caught:
        submission(tmp_path, GOOD, f"--request-id={text}")
    assert (caught.value.code, "--request-id" in caught.value.text) == (USAGE, True)


class Case(NamedTuple):
    """A change that spoils the good contract, and how it is told."""

    name: str
    old: str
    new: str
    line: int
    column: int
    field: str
    rule: str
    words: str


PROBLEMS = [
    Case("an unknown key", "hosts: 2", "nodes: 2", 7, 3, "spec.nodes", "1.1-1.17", "unknown key"),
    Case("an unknown key at the top", "kind: Job", "kind: Job\nstatus: x", 3, 1, "status", "1.1-1.17", "unknown key"),
    Case("a merge key", "  hosts: 2", "  <<: {hosts: 2}", 7, 3, "spec.<<", "1.1-1.17", "unknown key"),
    Case("another version", "fairlease/v1", "fairlease/v2", 1, 1, "apiVersion", "1.1-1.17", "fairlease/v1"),
    Case("another kind", "kind: Job", "kind: Pod", 2, 1, "kind", "1.1-1.17", "Job"),
    Case("no budget", "  budget: team-a\n", "", 5, 1, "spec.budget", "1.1", "required"),
    Case("a budget that is no name", "team-a", "Team A", 6, 3, "spec.budget", "1.1", "write 1 to 63 of"),
    Case("a budget with a path in it", "team-a", "../../etc", 6, 3, "spec.budget", "1.1", "write 1 to 63 of"),
    Case("no hosts at all", "hosts: 2", "hosts: 0", 7, 3, "spec.hosts", "1.2", "1 or more"),
    Case("hosts below zero", "hosts: 2", "hosts: -1", 7, 3, "spec.hosts", "1.2", "1 or more"),
    Case("more hosts than a cell has", "hosts: 2", "hosts: 16385", 7, 3, "spec.hosts", "1.2", "up to"),
    Case("half a host", "hosts: 2", "hosts: 1.5", 7, 3, "spec.hosts", "1.2", "whole number"),
    Case("hosts as text", "hosts: 2", 'hosts: "2"', 7, 3, "spec.hosts", "1.2", "whole number"),
    Case("hosts as truth", "hosts: 2", "hosts: true", 7, 3, "spec.hosts", "1.2", "whole number"),
    Case("hosts as nothing", "hosts: 2", "hosts:", 7, 3, "spec.hosts", "1.2", "whole number"),
    Case("hosts as a list", "hosts: 2", "hosts: [2]", 7, 3, "spec.hosts", "1.2", "whole number"),
    Case("a huge count", "hosts: 2", "hosts: 999999999999999999", 7, 3, "spec.hosts", "1.2", "up to"),
    Case(
        "too many GPUs on a host", "gpus_per_host: 8", "gpus_per_host: 17", 8, 3, "spec.gpus_per_host", "1.2", "up to"
    ),
    Case("a length without a unit", "1h30m", "90", 9, 3, "spec.min_runtime", "1.4", "with its unit"),
    Case("a bare number in quotes", "1h30m", '"90"', 9, 3, "spec.min_runtime", "1.4", "a unit"),
    Case("sexagesimal", "1h30m", "1:30", 9, 3, "spec.min_runtime", "1.4", "not a length"),
    Case("an unknown unit", "1h30m", "2w", 9, 3, "spec.min_runtime", "1.4", "ms, s, m, h, d"),
    Case("units out of order", "1h30m", "30m1h", 9, 3, "spec.min_runtime", "1.4", "largest first"),
    Case("half an hour as a fraction", "1h30m", "1.5h", 9, 3, "spec.min_runtime", "1.4", "whole number"),
    Case("a length below zero", "1h30m", "-1h", 9, 3, "spec.min_runtime", "1.4", "not a length"),
    Case("a length of a thousand years", "8h", "365000d", 10, 3, "spec.timeout", "1.5", "longer than"),
    Case("a length of many digits", "8h", "9999999999999h", 10, 3, "spec.timeout", "1.5", "not a length"),
    Case("a time-out of nothing", "8h", "0s", 10, 3, "spec.timeout", "1.5", "at least 1s"),
    Case("a grace in memory", "grace: 1m", "grace: 1Gi", 12, 5, "spec.checkpoint.grace", "1.7", "not a length"),
    Case("no command", "[python, train.py]", "[]", 13, 3, "spec.command", "1.13", "at least 1"),
    Case(
        "a command that is text", "[python, train.py]", "python train.py", 13, 3, "spec.command", "1.13", "write a list"
    ),
    Case("a number in a command", "[python, train.py]", "[python, 3]", 13, 21, "spec.command.1", "1.13", "write text"),
    Case("a variable that is a number", '"1"', "1", 15, 5, "spec.env.SEED", "1.13", "write text"),
    Case(
        "a variable with a bad name",
        "SEED:",
        "1SEED:",
        15,
        5,
        "spec.env.1SEED.[key]",
        "1.13",
        "does not begin with a digit",
    ),
    Case("metadata that is a list", "  name: train", "  - train", 3, 1, "metadata", "1.1-1.17", "write a mapping"),
    Case(
        "an unknown key deep down", "grace: 1m", "grace: 1m\n    x: 1", 13, 5, "spec.checkpoint.x", "1.7", "unknown key"
    ),
    Case("an endless name", "name: train", "name: " + "x" * 200, 4, 3, "metadata.name", "1.1-1.17", "at most 128"),
    Case("a pool twice", "  hosts: 2", "  pools: [a, a]\n  hosts: 2", 7, 3, "spec.pools", "1.3", "stands there twice"),
    Case("too many retries", "  hosts: 2", "  max_retries: 101\n  hosts: 2", 7, 3, "spec.max_retries", "1.8", "up to"),
    Case(
        "a word for a truth",
        "  hosts: 2",
        "  resumable: no\n  hosts: 2",
        7,
        3,
        "spec.resumable",
        "1.6",
        "true or false",
    ),
    Case("an unknown lane", "  hosts: 2", "  lane: fast\n  hosts: 2", 7, 3, "spec.lane", "1.10", "debug"),
    Case("a name that is empty", "name: train", 'name: ""', 4, 3, "metadata.name", "1.1-1.17", "at least 1"),
]


@pytest.mark.parametrize("case", PROBLEMS, ids=[case.name for case in PROBLEMS])
def test_a_problem_is_told_with_its_line_field_rule_and_way_out(tmp_path: Path, case: Case) -> None:
    found = {finding.field: finding for finding in problems(tmp_path, changed(case.old, case.new))}
    told = found[case.field]
    assert (told.file, told.line, told.column, told.rule) == ("job.yaml", case.line, case.column, case.rule)
    assert case.words in told.way_out


@pytest.mark.parametrize("text", ["null", "[]", "- a", "just words", "12"])
def test_a_file_that_is_no_mapping_is_refused_at_its_beginning(tmp_path: Path, text: str) -> None:
    (found,) = problems(tmp_path, text)
    assert (found.line, found.column) == (1, 1)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = changed("hosts: 2", "hosts: 0").replace("8h", "8").replace("kind: Job", "kind: job")
    assert [finding.line for finding in problems(tmp_path, text)] == [2, 7, 10]


def test_a_strange_key_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace("  hosts: 2", '  "a\u00adb\U000e0041": 2'), encoding="utf-8")
    assert main(["submit", str(path)]) == CONTRACT
    assert "a\ufffdb\ufffd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("--budget team-b", "budget", "team-b"),
        ("--hosts 4", "hosts", 4),
        ("--gpus 2", "gpus_per_host", 2),
        ("--min-runtime 15m", "min_runtime", 900_000),
        ("--timeout 9h", "timeout", 32_400_000),
        ("--on-timeout requeue", "on_timeout", "requeue"),
        ("--pool h200 --pool h100", "pools", ("h200", "h100")),
        ("--lane debug", "lane", "debug"),
        ("--max-retries 3", "max_retries", 3),
        ("--not-resumable", "resumable", False),
        ("--env SEED=2 --env X=y", "env", {"SEED": "2", "X": "y"}),
        ("-- echo hi", "command", ("echo", "hi")),
    ],
)
def test_an_option_beats_the_file(tmp_path: Path, words: str, path: str, value: object) -> None:
    assert getattr(submission(tmp_path, GOOD, *words.split()).contract.spec, path) == value


def test_grace_and_name_are_laid_over_too(tmp_path: Path) -> None:
    contract = submission(tmp_path, GOOD, "--grace", "2m", "--name", "again").contract
    assert (contract.spec.checkpoint.grace, contract.metadata.name) == (120_000, "again")


def test_options_alone_make_a_contract() -> None:
    found = read_submission(arguments("--budget", "a", "--min-runtime", "0s", "--timeout", "1h", "--", "true", "--x"))
    assert found.data["spec"] == {"budget": "a", "min_runtime": "0s", "timeout": "1h", "command": ["true", "--x"]}


def test_what_options_leave_out_is_asked_for_by_the_option() -> None:
    with pytest.raises(CommandError) as caught:
        read_submission(arguments("--timeout", "1h", "--", "true"))
    assert [finding.field for finding in caught.value.findings] == [
        "spec.budget (--budget)",
        "spec.min_runtime (--min-runtime)",
    ]


def test_a_problem_an_option_made_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, GOOD, "--hosts", "99999")
    assert (found.field, found.line) == ("spec.hosts (--hosts)", 0)


def test_options_over_a_file_that_is_no_mapping_leave_the_refusal_to_the_contract(tmp_path: Path) -> None:
    assert problems(tmp_path, "- a", "--hosts", "2")[0].line == 1
    assert problems(tmp_path, changed("spec:", "spec: 1\nx:"), "--hosts", "2")[0].field == "spec"


@pytest.mark.parametrize("name", ["absent.yaml", ".", "a\x00b"])
def test_a_file_that_cannot_be_read_is_65_with_its_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError) as caught:
        read_submission(arguments(f"{tmp_path}/{name}"))
    assert caught.value.code == CONTRACT
    assert f"{tmp_path}/{name}" in caught.value.text


def test_a_contract_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert read_submission(arguments("-")).contract.spec.budget == "team-a"


def test_a_contract_too_large_for_an_inbox_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    variables = "".join(f"    V{number}: {'x' * 1000}\n" for number in range(60))
    with pytest.raises(CommandError, match="the limit is 49152") as caught:
        submission(tmp_path, GOOD + variables)
    assert caught.value.code == CONTRACT


def test_a_refused_file_reads_like_a_compiler_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(changed("hosts: 2", "hosts: 0"), encoding="utf-8")
    assert main(["submit", str(path)]) == CONTRACT
    assert capsys.readouterr().err == (
        f"fairlease: {path} is not a contract\n"
        f"  {path}:7:3: spec.hosts '0' (rule 1.2, >= 1): write a whole number, 1 or more\n"
    )


def test_a_refused_file_is_data_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("a: *b", encoding="utf-8")
    assert main(["submit", str(path), "--json"]) == CONTRACT
    told = json.loads(capsys.readouterr().err)
    assert told["exit_code"] == CONTRACT
    assert told["problems"] == [
        {
            "way_out": "anchors and aliases (& and *) are not allowed: write the value out",
            "file": str(path),
            "line": 1,
            "column": 4,
        }
    ]


def test_a_dry_run_shows_the_whole_contract_and_can_be_submitted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert main(["submit", str(path), "--dry-run", "--request-id", "r", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["kind"], first["request_id"]) == ("DryRun", "r")
    assert main(["submit", str(path), "--dry-run", "--request-id", "r"]) == 0
    shown = capsys.readouterr()
    assert first["job"] in shown.err
    path.write_text(shown.out, encoding="utf-8")
    assert main(["submit", str(path), "--dry-run", "--request-id", "r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_every_option_of_a_contract_is_a_field_of_it() -> None:
    words = (
        *(
            "--budget",
            "a",
            "--min-runtime",
            "30m",
            "--timeout",
            "2h",
            "--cpu-per-host",
            "8",
            "--memory-per-host",
            "64Gi",
        ),
        *("--disk-per-host", "1Ti", "--gpu-model", "H100", "--gpu-model", "H200", "--min-gpu-memory", "80Gi"),
        *(
            "--host-label",
            "zone=a",
            "--same-block",
            "--checkpoint-uri",
            "s3://bucket/x",
            "--checkpoint-interval",
            "20m",
        ),
        *(
            "--checkpoint-signal",
            "USR1",
            "--array",
            "4%2",
            "--after",
            "job-" + "a" * 20 + ":any",
            "--evaluation",
            "mmlu",
        ),
        *("--label", "team=x", "--image", "lab/train:7", "--secret", "KEY=secret:wandb", "--start-limit", "5m"),
        *("--source-repo", "https://h/x", "--source-commit", "a" * 40),
    )
    said = read_submission(arguments(*words, "--", "train"))
    assert said.data["spec"] == {
        "budget": "a",
        "min_runtime": "30m",
        "timeout": "2h",
        "cpu_per_host": 8,
        "memory_per_host": "64Gi",
        "disk_per_host": "1Ti",
        "constraints": {
            "gpu_model": ["H100", "H200"],
            "min_gpu_memory": "80Gi",
            "same_block": True,
            "labels": {"zone": "a"},
        },
        "checkpoint": {"uri": "s3://bucket/x", "interval": "20m", "signal": "USR1"},
        "array": {"count": 4, "parallel": 2},
        "after": [{"job": "job-" + "a" * 20, "when": "any"}],
        "evaluation": "mmlu",
        "image": "lab/train:7",
        "source": {"repo": "https://h/x", "commit": "a" * 40},
        "start_limit": "5m",
        "command": ["train"],
        "secrets": {"KEY": "secret:wandb"},
        "labels": {"team": "x"},
    }
    again = {**said.data["spec"], "hosts": 1, "gpus_per_host": 1, "on_timeout": "fail", "resumable": True}
    again |= {"max_retries": 0, "env": {}, "checkpoint": {"grace": "30s", **said.data["spec"]["checkpoint"]}}
    assert written_out(said.contract)["spec"] == again


def test_a_mistake_in_an_option_is_told_by_its_name() -> None:
    with pytest.raises(CommandError) as caught:
        read_submission(
            arguments("--budget", "a", "--min-runtime", "0s", "--timeout", "1h", "--array", "201", "--", "x")
        )
    assert [finding.field for finding in caught.value.findings] == ["spec.array.count (--array)"]


def test_a_secret_in_the_command_is_told_before_anything_is_sent() -> None:
    words = ("--budget", "a", "--min-runtime", "0s", "--timeout", "1h", "--env", "X=ghp_" + "a1" * 18)
    with pytest.raises(CommandError) as caught:
        read_submission(arguments(*words, "--", "x"))
    (finding,) = caught.value.findings
    assert (finding.field, finding.rule, finding.value) == ("spec.env.X (--env)", "1.13", "")
    assert "a GitHub token" in finding.way_out
