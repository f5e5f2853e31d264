import argparse
import json

import pytest

from fairlease.cli import parser, verbs
from fairlease.cli.exits import USAGE, CommandError
from fairlease.cli.main import main
from fairlease.cli.parser import agent
from fairlease.core.job import Phase
from fairlease.core.metrics.cost import By


def test_the_words_of_a_choice_are_those_of_core() -> None:
    """Written out there, because core takes longer to import than the parser may to start."""
    assert tuple(map(str, Phase)) == verbs.STATES
    assert tuple(map(str, By)) == verbs.COSTS


def parse(*words: str) -> argparse.Namespace:
    return parser.parse(words, verbs.build())


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        pytest.param("submit job.yaml", {"file": "job.yaml", "command": None, "wait": False}, id="a file"),
        pytest.param("submit -", {"file": "-"}, id="standard input"),
        pytest.param(
            "submit -- python t.py --lr 1 -- x", {"command": ["python", "t.py", "--lr", "1", "--", "x"]}, id="CMD"
        ),
        pytest.param(
            "submit f.yaml --gpus 8 -- a", {"file": "f.yaml", "gpus_per_host": 8, "command": ["a"]}, id="both"
        ),
        pytest.param("submit f --min-runtime 1h30m", {"min_runtime": "1h30m"}, id="a contract's length stays as typed"),
        pytest.param("submit f --start-timeout 10m --wait", {"start_timeout_ms": 600_000}, id="our length is in ms"),
        pytest.param("submit f --answer-timeout 2s", {"answer_timeout_ms": 2_000}, id="answer time-out"),
        pytest.param("submit f --pool a --pool b", {"pool": ["a", "b"]}, id="pools in order"),
        pytest.param("submit f --env A=1 --env B=x=y", {"env": [("A", "1"), ("B", "x=y")]}, id="environment"),
        pytest.param("submit f --env A=", {"env": [("A", "")]}, id="an empty variable"),
        pytest.param("submit f --array 10", {"array": {"count": 10}}, id="an array"),
        pytest.param("submit f --array 10%2", {"array": {"count": 10, "parallel": 2}}, id="two of ten at a time"),
        pytest.param(
            "submit f --after job-a --after job-b:any",
            {"after": [{"job": "job-a", "when": "ok"}, {"job": "job-b", "when": "any"}]},
            id="after others",
        ),
        pytest.param("submit f --memory-per-host 64Gi", {"memory_per_host": "64Gi"}, id="a size stays as typed"),
        pytest.param("submit f --same-block", {"same_block": True}, id="one block"),
        pytest.param("submit f --max-retries 0", {"max_retries": 0}, id="no retries"),
        pytest.param("queue", {"limit": 50, "output": "table", "question": "queue"}, id="queue"),
        pytest.param("queue --json -q", {"output": "json", "quiet": True}, id="--json is -o json"),
        pytest.param("queue -ojsonl", {"output": "jsonl"}, id="-o without a space"),
        pytest.param("why job-abc-a3", {"job": "job-abc"}, id="an attempt stands for its job"),
        pytest.param("why job-abc --at 7 --lang zh", {"at": 7, "lang": "zh"}, id="why at a position, in Chinese"),
        pytest.param("job logs j -f --attempt 2 --host h-1", {"follow": True, "attempt": 2, "host": "h-1"}, id="logs"),
        pytest.param("job cancel j", {"wish": "cancel-job", "answer_timeout_ms": 15_000}, id="cancel"),
        pytest.param(
            "host cordon h-1 --reason fan", {"wish": "cordon-host", "host": "h-1", "reason": "fan"}, id="cordon"
        ),
        pytest.param("host return h-1", {"wish": "return-host"}, id="return"),
        pytest.param("budget show", {"question": "shares", "budget": None}, id="all budgets"),
        pytest.param("budget set a --weight 0", {"weight": 0, "parent": None, "reason": ""}, id="a budget"),
        pytest.param("policy show", {"question": "policy"}, id="policy"),
        pytest.param("replay --live --json", {"live": True, "log": None, "output": "json"}, id="replay the live log"),
        pytest.param("replay x.jsonl", {"live": False, "log": "x.jsonl"}, id="replay a file"),
        pytest.param(
            "trace play t.csv --hosts 20x8 --speed 60 --cut 30 --limit 9",
            {"file": "t.csv", "hosts": (20, 8), "speed": 60.0, "cut": 30.0, "limit": 9},
            id="play a trace",
        ),
        pytest.param(
            "up --simulate-gpus 4x8 --account ci --account x",
            {"simulate_gpus": (4, 8), "account": ["ci", "x"]},
            id="up",
        ),
        pytest.param("up", {"simulate_gpus": None, "account": [], "label": [], "pool": None}, id="up with nothing"),
        pytest.param(
            "serve agent --pool h100 --block row-a/rack-7 --label zone=a --label net=ib --host gpu-7 "
            "--address gpu-7 --users /etc/u",
            {
                "pool": "h100",
                "address": "gpu-7",
                "users": "/etc/u",
                "block": "row-a/rack-7",
                "label": [("zone", "a"), ("net", "ib")],
                "host": "gpu-7",
            },
            id="what is said of an agent's hosts",
        ),
        pytest.param(
            "metrics --since 7d --until 2026-11-30T12:00 --budget b --pool p --person a --log l.jsonl",
            {"since": "7d", "until": "2026-11-30T12:00", "budget": "b", "pool": "p", "person": "a", "log": "l.jsonl"},
            id="figures of a period",
        ),
        pytest.param("metrics", {"since": None, "until": None, "log": None}, id="figures of all there is"),
        pytest.param("acct job-a-a2 job-b --state failed", {"jobs": ["job-a", "job-b"], "state": "failed"}, id="acct"),
        pytest.param(
            "cost --by person --price h100=2.5 --price l40s=0.000001",
            {"by": "person", "price": [("h100", 2_500_000), ("l40s", 1)]},
            id="prices in millionths",
        ),
        pytest.param("serve ranker", {"service": "ranker", "module": "fairlease.cli.serve"}, id="serve"),
        pytest.param("demo --json", {"module": "fairlease.cli.demo", "output": "json"}, id="demo"),
        pytest.param("doctor", {"module": "fairlease.cli.doctor"}, id="doctor"),
    ],
)
def test_words_become_arguments(words: str, seen: dict[str, object]) -> None:
    args = parse(*words.split())
    assert {key: getattr(args, key) for key in seen} == seen


@pytest.mark.parametrize(
    ("words", "names"),
    [
        pytest.param("", "COMMAND", id="nothing"),
        pytest.param("sumbit x", "sumbit", id="an unknown command"),
        pytest.param("job", "COMMAND", id="half a command"),
        pytest.param("queue --lim 3", "--lim", id="a shortened option"),
        pytest.param("queue --limit 0", "too small", id="no rows"),
        pytest.param("queue --limit -3", "--limit", id="a negative number"),
        pytest.param("queue --limit ٣", "whole number", id="a digit that is not ASCII"),
        pytest.param("queue --limit 99999999999999999999", "whole number", id="a huge number"),
        pytest.param("queue --limit 1e3", "whole number", id="a float for a count"),
        pytest.param("queue -o xml", "xml", id="an unknown form"),
        pytest.param("queue --me --submitter a", "not allowed with", id="two submitters"),
        pytest.param("queue -- x", "submit", id="a command for a question"),
        pytest.param("queue --account A.b", "not a name", id="an account that is no name"),
        pytest.param("submit f --min-runtime 30", "not a length", id="a bare number"),
        pytest.param("submit f --timeout 1h1h", "out of order", id="a unit twice"),
        pytest.param("submit f --hosts 0", "too small", id="a gang of none"),
        pytest.param("submit f --array 0", "too small", id="an array of none"),
        pytest.param("submit f --array 5%0", "too small", id="none at a time"),
        pytest.param("submit f --array x", "whole number", id="an array of letters"),
        pytest.param("submit f --after job-a:never", "JOB:any", id="after in another way"),
        pytest.param("metrics --since yesterday", "is no instant", id="an instant of no kind"),
        pytest.param("cost --price h100", "'h100' is no price of a pool", id="a pool without a price"),
        pytest.param("submit f --gpu 8", "did you mean --gpus?", id="an option that is nearly one"),
        pytest.param("cost --price h100=-1", "is no price", id="a price below nothing"),
        pytest.param("cost --price h100=0.0000001", "six decimals", id="a price finer than millionths"),
        pytest.param("cost --price H=1", "not a name", id="a price of no pool"),
        pytest.param("cost --by moon", "moon", id="costs by something else"),
        pytest.param("submit f --memory-per-host 64", "not an amount", id="memory without a unit"),
        pytest.param("budget member a Bob", "not a name", id="an account that is no name"),
        pytest.param("budget member a bob --role boss", "boss", id="an unknown role"),
        pytest.param("submit f --lane fast", "fast", id="an unknown lane"),
        pytest.param("submit f --on-timeout die", "die", id="an unknown ending"),
        pytest.param("submit f --env A", "KEY=VALUE", id="a variable without a value"),
        pytest.param("submit f --env =x", "KEY=VALUE", id="a value without a variable"),
        pytest.param("submit f --budget Team_A", "not a name", id="a budget that is no name"),
        pytest.param("submit f g", "g", id="two files"),
        pytest.param("why", "JOB", id="why without a job"),
        pytest.param("why j --at 0", "too small", id="before the log"),
        pytest.param("host cordon h.1", "not a name", id="a host that is no name"),
        pytest.param("budget set a", "--weight", id="a budget without a weight"),
        pytest.param("replay", "required", id="replay of nothing"),
        pytest.param("replay --live x", "not allowed with", id="replay of two logs"),
        pytest.param("up --simulate-gpus 4", "hosts x GPUs", id="half a grid"),
        pytest.param("up --simulate-gpus 0x8", "too small", id="a grid without hosts"),
        pytest.param("up --simulate-gpus 4x17", "hosts of 16 GPUs", id="a host larger than an agent simulates"),
        pytest.param("serve agent --simulate-gpus 5000x8", "at most 4096 hosts", id="too many simulated hosts"),
        pytest.param("up --address 10.0.0.7:80", "is not an address", id="an address with a port"),
        pytest.param("up --block a//b", "is no topology block", id="a block with a part that is missing"),
        pytest.param("up --label Zone=a", "is not a label", id="a label that no contract could ask for"),
        pytest.param("trace play t --speed 0", "above 0", id="standing still"),
        pytest.param("trace play t --speed nan", "above 0", id="no speed at all"),
        pytest.param("serve postman", "postman", id="an unknown service"),
    ],
)
def test_a_mistake_ends_in_64_and_is_named(words: str, names: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse(*words.split())
    assert caught.value.code == USAGE
    assert names in caught.value.text
    assert "--help" in caught.value.way_out


@pytest.mark.parametrize(
    "words", [["submit"], ["submit", "f", "--follow", "--json"], ["submit", "f", "--start-timeout", "1s"]]
)
def test_a_submission_that_makes_no_sense_is_usage_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == USAGE
    assert capsys.readouterr().err


@pytest.mark.parametrize("form", ["--json", "-ojson", "--output=jsonl", "-o yaml"])
def test_a_mistake_is_json_where_json_is_wanted(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--limit", "x", *form.split()]) == USAGE
    told = json.loads(capsys.readouterr().err)
    assert (told["kind"], told["exit_code"]) == ("Error", USAGE)


def test_the_form_of_the_jobs_own_command_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--limit", "x", "--", "tool", "--json"]) == USAGE
    assert capsys.readouterr().err.startswith("fairlease: ")


@pytest.mark.parametrize("words", ["--help", "submit --help", "job logs --help", "trace play --help", "--version"])
def test_help_and_version_are_no_mistake(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    assert "fairlease" in capsys.readouterr().out


def test_the_account_of_the_environment_must_be_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEASE_ACCOUNT", "a b")
    with pytest.raises(CommandError, match="FAIRLEASE_ACCOUNT"):
        parser.account_of(parse("queue"))
    assert parser.account_of(parse("queue", "--account", "ci")) == "ci"
    monkeypatch.delenv("FAIRLEASE_ACCOUNT")
    assert parser.account_of(parse("queue")) == "local"


@pytest.mark.parametrize(
    ("words", "prog"),
    [
        pytest.param(["queue", "--limt", "5"], "fairlease queue", id="an option that is none"),
        pytest.param(["job", "show", "job-x", "job-y"], "fairlease job show", id="a word too many"),
        pytest.param(["rank", "--at", "x"], "fairlease rank", id="a value that is none"),
        pytest.param(["queue", "--", "tool"], "fairlease queue", id="a command where none belongs"),
    ],
)
def test_a_mistake_points_to_the_help_of_its_command(words: list[str], prog: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse(*words)
    assert caught.value.way_out == f"see: {prog} --help"


@pytest.mark.parametrize(
    ("text", "found"),
    [("gpu-7=gpu-7", ("gpu-7", ("gpu-7",))), ("row-a=h-1,h-2,h-1", ("row-a", ("h-1", "h-2")))],
)
def test_an_agent_is_written_with_its_hosts(text: str, found: tuple[str, tuple[str, ...]]) -> None:
    assert agent(text) == found


@pytest.mark.parametrize(
    "text", ["gpu-7", "agent=gpu-7", "=gpu-7", "gpu-7=", "gpu-7=a,", "gpu-7=A", "a.b=c", "a=*", "a=>"]
)
def test_what_is_no_agent_with_hosts_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        agent(text)
