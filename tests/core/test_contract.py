"""The contract as people write it: what is read, and what they are told when it cannot be."""

import copy
import re
from typing import Any

import pytest

from fairlease_schemas import codec
from fairlease_schemas.contract import Spec, body, read_contract, scheduling_fields
from fairlease_schemas.job import Problem, Request
from tests.dsl.cell import HOUR, MINUTE, SECOND

LEAST = {"budget": "a", "min_runtime": "30m", "timeout": "2h", "command": ["python", "train.py"]}


def written(**spec: object) -> dict[str, Any]:
    return {"apiVersion": "fairlease/v1", "kind": "Job", "spec": copy.deepcopy(LEAST) | spec}


def without(key: str) -> dict[str, Any]:
    return {"apiVersion": "fairlease/v1", "kind": "Job", "spec": {k: v for k, v in LEAST.items() if k != key}}


def told(data: object) -> list[tuple[str, str, str]]:
    """(field, rule, way out) of each problem."""
    contract, problems = read_contract(data)
    assert (contract is None) == bool(problems)
    codec.canonical(in_the_log(problems))
    return [(problem.field, problem.rule, problem.way_out) for problem in problems]


def in_the_log(problems: tuple[Problem, ...]) -> list[list[str]]:
    """All that a refusal would put in the log."""
    return [[p.field, p.rule, p.value, p.limit, p.way_out] for p in problems]


def test_the_least_contract_has_honest_defaults() -> None:
    contract, problems = read_contract(written())
    assert problems == ()
    assert contract is not None
    assert scheduling_fields(contract) == Request(
        hosts=1,
        gpus_per_host=1,
        pools=(),
        min_runtime_ms=30 * MINUTE,
        timeout_ms=2 * HOUR,
        grace_ms=30 * SECOND,
        is_resumable=True,
    )


def test_the_body_is_written_out_in_milliseconds_with_every_default() -> None:
    contract, _ = read_contract(written(checkpoint={"grace": "1m"}))
    assert contract is not None
    assert body(contract) == {
        "apiVersion": "fairlease/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {
            "budget": "a",
            "hosts": 1,
            "gpus_per_host": 1,
            "pools": None,
            "min_runtime_ms": 30 * MINUTE,
            "timeout_ms": 2 * HOUR,
            "on_timeout": "fail",
            "resumable": True,
            "checkpoint": {"grace_ms": MINUTE},
            "max_retries": 0,
            "lane": None,
            "command": ["python", "train.py"],
            "env": {},
        },
    }


def test_two_spellings_of_one_contract_have_one_digest() -> None:
    spellings = (written(), written(timeout="120m", hosts=1), written(command=["python", "train.py"], env={}))
    contracts = [read_contract(spelling)[0] for spelling in spellings]
    assert len({codec.digest(body(contract)) for contract in contracts if contract}) == 1


def test_text_is_put_into_one_normal_form() -> None:
    contract, _ = read_contract(written(command=["e\u0301"]))
    assert contract is not None
    assert contract.spec.command == ("\u00e9",)


NO_BUDGET = "required: write it, for example vision; `fairlease shares` lists those that there are"
NO_WINDOW = "required: write it, for example 30m, in which nobody may take its GPUs, or 0s for idle work"
NO_TIMEOUT = "required: write it, for example 2h, after which an attempt is ended"
NO_LENGTH = "write a length with its unit in quotes or plain text, for example 30m or 1h30m"
UNKNOWN = "unknown key: remove it, or look its name up in the contract reference"
WHOLE = "write a whole number, without quotes"


@pytest.mark.parametrize(
    ("data", "field", "rule", "way_out"),
    [
        pytest.param(without("budget"), "spec.budget", "1.1", NO_BUDGET, id="no budget"),
        pytest.param(without("timeout"), "spec.timeout", "1.5", NO_TIMEOUT, id="no timeout"),
        pytest.param(without("min_runtime"), "spec.min_runtime", "1.4", NO_WINDOW, id="no window"),
        pytest.param(
            without("command"),
            "spec.command",
            "1.13",
            "write the command, or such an image",
            id="neither command nor image",
        ),
        pytest.param(written(timeout=30), "spec.timeout", "1.5", NO_LENGTH, id="a bare number"),
        pytest.param(written(timeout=None), "spec.timeout", "1.5", NO_LENGTH, id="nothing for a length"),
        pytest.param(
            written(timout="1h"),
            "spec.timout",
            "1.1-1.17",
            "unknown key: write timeout, if that was meant, or remove it",
            id="a slip of the pen",
        ),
        pytest.param(
            written(gpus=4),
            "spec.gpus",
            "1.1-1.17",
            "unknown key: write gpus_per_host, if that was meant, or remove it",
            id="half a key",
        ),
        pytest.param(
            written(grace="1m"),
            "spec.grace",
            "1.1-1.17",
            "unknown key here: it belongs at spec.checkpoint.grace",
            id="a key in another block",
        ),
        pytest.param(
            written(checkpoint={"grase": "1m"}),
            "spec.checkpoint.grase",
            "1.7",
            "unknown key: write grace, if that was meant, or remove it",
            id="a slip of the pen in a block",
        ),
        pytest.param(written(pools="h100"), "spec.pools", "1.3", "write a list, for example [h100]", id="no list"),
        pytest.param(
            written(after="job-x"),
            "spec.after",
            "1.11",
            "write a list, for example [{job: job-…, when: ok}]",
            id="no list of mappings",
        ),
        pytest.param(written(array=3), "spec.array", "1.11", "write a mapping of keys and values", id="no mapping"),
        pytest.param(
            written(env=["A"]), "spec.env", "1.13", "write a mapping, for example {NAME: value}", id="no environment"
        ),
        pytest.param(
            written(env={"A": 1}),
            "spec.env.A",
            "1.13",
            "write text, in quotes where it looks like a number or a word of YAML",
            id="a number for text",
        ),
        pytest.param(
            written(env={"1X": "a"}),
            "spec.env.1X.[key]",
            "1.13",
            "write a name of A-Z a-z 0-9 _ that does not begin with a digit",
            id="a variable that is no name",
        ),
        pytest.param(
            written(budget="Team A"),
            "spec.budget",
            "1.1",
            "write 1 to 63 of a-z 0-9 - and begin and end with a letter or a digit",
            id="a budget that is no name",
        ),
        pytest.param(
            written(source={"repo": "https://host/x", "commit": "main"}),
            "spec.source.commit",
            "1.13",
            "write the whole id of the commit, 40 or 64 of 0-9 a-f; branches move",
            id="a branch",
        ),
        pytest.param(written(command=["x"] * 300), "spec.command", "1.13", "write at most 256 entries", id="long"),
        pytest.param(
            written(memory_per_host="0Mi"),
            "spec.memory_per_host",
            "1.2",
            "write an amount of memory from 1Mi on",
            id="no memory at all",
        ),
        pytest.param(written(hosts=0), "spec.hosts", "1.2", "write a whole number, 1 or more", id="no hosts"),
        pytest.param(written(checkpoint={"x": 1}), "spec.checkpoint.x", "1.7", UNKNOWN, id="a slip further in"),
        pytest.param(written(hosts="2"), "spec.hosts", "1.2", WHOLE, id="a number in quotes"),
        pytest.param(written(hosts=True), "spec.hosts", "1.2", WHOLE, id="yes for a number"),
        pytest.param(
            written(hosts=10**400),
            "spec.hosts",
            "1.2",
            "write a whole number up to 2048",
            id="a number beyond all bounds",
        ),
        pytest.param(
            written(command=["a\0b"]), "spec.command.0", "1.13", "character U+0000 is not allowed: remove it", id="NUL"
        ),
        pytest.param(
            written(env={"A": "x\u202ey"}),
            "spec.env.A",
            "1.13",
            "character U+202E is not allowed: remove it",
            id="text that turns around",
        ),
        pytest.param(
            written(env={"A": "\ud800"}),
            "spec.env.A",
            "1.13",
            "text holds half of a surrogate pair: write valid Unicode",
            id="half a character",
        ),
        pytest.param(
            written(timeout="999ms", min_runtime="0s"),
            "spec.timeout",
            "1.5",
            "an attempt needs at least 1s; write for example 1h",
            id="no time at all",
        ),
        pytest.param(
            written(pools=["a", "b", "a"]),
            "spec.pools",
            "1.3",
            "the same pool stands there twice; name each once",
            id="a pool twice",
        ),
        pytest.param(
            written(pools=[]),
            "spec.pools",
            "1.3",
            "write at least 1 entry",
            id="no pool",
        ),
        pytest.param(written(lane="fast"), "spec.lane", "1.10", "write debug", id="an unknown lane"),
        pytest.param(written(resumable="yes"), "spec.resumable", "1.6", "write true or false", id="yes in words"),
    ],
)
def test_what_is_wrong_is_told_with_field_rule_and_way_out(data: object, field: str, rule: str, way_out: str) -> None:
    assert told(data) == [(field, rule, way_out)]


@pytest.mark.parametrize("value", [5, 1.5, True, None, "", "A b", "x" * 9_000, [], ["A b"] * 300, {}, {"A b": [1]}])
@pytest.mark.parametrize("key", [*Spec.model_fields, "unknown"])
def test_nobody_is_told_in_the_words_of_the_library(key: str, value: object) -> None:
    _, problems = read_contract(written(**{key: value}))
    for problem in problems:
        words = problem.way_out + problem.limit
        assert not re.search(r"Input should|String should|valid (tuple|dictionary|string)|after validation|\^", words)


@pytest.mark.parametrize(
    ("spec", "field", "value", "limit"),
    [
        pytest.param({"timeout": "999ms", "min_runtime": "0s"}, "timeout", "999ms", "at least 1s", id="no time at all"),
        pytest.param({"start_limit": "2h"}, "start_limit", "2h", "1s to 1h", id="a start that takes for ever"),
        pytest.param({"pools": ["a", "b", "a", "b"]}, "pools", "a", "each pool once", id="two pools twice"),
        pytest.param(
            {"array": {"count": 2, "parallel": 3}}, "array.parallel", "3", "the count, 2", id="more than there are"
        ),
        pytest.param(
            {"env": {"AWS_SESSION_TOKEN": "x"}}, "env.AWS_SESSION_TOKEN", "", "no secrets", id="a known secret"
        ),
        pytest.param(
            {"env": {"A": "x"}, "secrets": {"A": "secret:x"}}, "secrets.A", "", "each name once", id="one name twice"
        ),
    ],
)
def test_what_is_wrong_between_fields_names_one_of_them(
    spec: dict[str, object], field: str, value: str, limit: str
) -> None:
    _, (problem,) = read_contract(written(**spec))
    assert (problem.field, problem.value, problem.limit) == (f"spec.{field}", value, limit)
    assert problem.way_out


def test_a_window_beyond_the_timeout_does_not_matter_when_it_cannot_be_resumed() -> None:
    assert told(written(min_runtime="3h", resumable=False)) == []


@pytest.mark.parametrize(
    "data", [None, 5, "x", [], {}, {"spec": []}, {"apiVersion": 1, "kind": [], "spec": {"hosts": {}}}]
)
def test_anything_at_all_is_answered(data: object) -> None:
    assert told(data)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        pytest.param("k\u202ex", "spec.k\ufffdx", id="text that turns around"),
        pytest.param("a\x1b[31m", "spec.a\ufffd[31m", id="a terminal's escape"),
        pytest.param("e\u0301", "spec.\u00e9", id="another normal form"),
        pytest.param("k" * 1_000, "spec." + "k" * 195, id="a very long key"),
    ],
)
def test_a_key_is_shown_so_that_it_can_do_no_harm(key: str, shown: str) -> None:
    assert told(written(**{key: 1})) == [(shown, "1.1-1.17", UNKNOWN)]


def test_a_value_is_shown_so_that_it_can_do_no_harm() -> None:
    _, (problem,) = read_contract(written(lane="e\u0301\u202e" + "x" * 200))
    assert problem.value == "\u00e9\ufffd" + "x" * 78


def test_at_most_twenty_problems_are_told() -> None:
    assert len(told(written(**{f"k{n}": 1 for n in range(40)}))) == 20
