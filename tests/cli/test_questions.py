import json

import msgspec
import pytest

from fairlease.cli.exits import AWAY, FAILED, FORBIDDEN, LATER, OK, USAGE
from fairlease_schemas.explain import BudgetNode, HostsView, PolicyView, QueueView, SharesView, Trouble
from fairlease_schemas.job import Problem
from tests.cli.cell import AS_OF, Cell
from tests.cli.test_screens import QUEUE, share_row


def test_a_view_is_printed_as_the_cell_wrote_it(cell: Cell) -> None:
    cell.plan.replies["queue"] = QUEUE
    assert json.loads(cell.run("queue", "--json").out) == json.loads(msgspec.json.encode(QUEUE))


@pytest.mark.parametrize(
    ("words", "question", "body"),
    [
        ("queue --limit 5 --budget team-a", "queue", {"limit": 5, "budget": "team-a"}),
        ("queue --me", "queue", {"limit": 50, "account": "local"}),
        ("queue --submitter ci", "queue", {"limit": 50, "account": "ci"}),
        ("why job-x --at 9", "why", {"job": "job-x", "at": 9}),
        ("job show job-x-a2", "job", {"job": "job-x"}),
        ("shares", "shares", {}),
        ("hosts", "hosts", {}),
        ("policy show", "policy", {}),
    ],
)
def test_a_question_is_asked_with_what_applies(cell: Cell, words: str, question: str, body: dict[str, object]) -> None:
    cell.run(*words.split())
    assert cell.plan.asked == [(question, body)]


def test_rows_are_lines_for_a_program(cell: Cell) -> None:
    cell.plan.replies["queue"] = QUEUE
    lines = [json.loads(line) for line in cell.run("queue", "-o", "jsonl").out.splitlines()]
    assert [(line["job"], line["as_of"]["position"]) for line in lines] == [(row.job, 42) for row in QUEUE.rows]
    assert cell.run("queue", "-o", "name").out.split() == [row.job for row in QUEUE.rows]


def test_yaml_keeps_the_order_of_the_keys(cell: Cell) -> None:
    cell.plan.replies["policy"] = PolicyView(name="default", policy={"lookback_ms": 1, "b": [1]}, as_of=AS_OF)
    assert cell.run("policy", "show", "-o", "yaml").out == (
        "kind: Policy\napiVersion: fairlease/v1\nname: default\npolicy:\n  lookback_ms: 1\n  b:\n  - 1\n"
        "as_of:\n  epoch: 1\n  position: 42\n  log_time_ms: 1700000000000\n"
    )


def test_a_part_of_the_tree_is_shown_with_what_is_below_it(cell: Cell) -> None:
    rows = (
        share_row("root", "", 0, 1),
        share_row("a", "root", 1, 1),
        share_row("a1", "a", 2, 1),
        share_row("b", "root", 1, 1),
    )
    nodes = (BudgetNode(budget="a", order="fifo", leads=("ann",)), BudgetNode(budget="b", order="fifo", leads=("bob",)))
    cell.plan.replies["shares"] = SharesView(rows=rows, as_of=AS_OF, nodes=nodes)
    assert cell.run("budget", "show", "a", "-o", "name").out.split() == ["a", "a1"]
    shown = cell.run("budget", "show", "a", "--json")
    assert [node["leads"] for node in json.loads(shown.out)["nodes"]] == [["ann"]]
    assert [cell.run(*words.split()).out.count("ann") for words in ("budget show", "budget show b", "shares")] == [
        1,
        0,
        0,
    ]
    assert [row["budget"] for row in json.loads(cell.run("budget", "show", "b", "--json").out)["rows"]] == ["b"]
    unknown = cell.run("budget", "show", "c")
    assert (unknown.code, "no budget c" in unknown.err) == (FAILED, True)


def test_what_the_explainer_does_not_know_is_1(cell: Cell) -> None:
    seen = cell.run("why", "job-x", "--json")
    told = json.loads(seen.err)
    assert (seen.code, seen.out, told["trouble"]) == (FAILED, "", "unknown-job")
    assert "job-x" in told["text"]
    past = cell.run("why", "job-x", "--at", "18")
    assert past.err == (
        "fairlease: there was no job job-x at position 18 of the log\n  ask about a later position, or without --at\n"
    )
    beyond = "at 9999: the log ends at 120; ask about a position from 1 to 120"
    cell.plan.replies["rank"] = Trouble(code="bad-question", text=beyond)
    assert cell.run("rank", "--at", "9999").err == f"fairlease: {beyond}\n"
    cell.plan.replies["hosts"] = Trouble(code="unknown-question", text="no such question")
    assert cell.run("hosts").err == "fairlease: no such question\n  run the version the cell runs\n"


def test_an_empty_cell_is_an_answer(cell: Cell) -> None:
    cell.plan.replies["hosts"] = HostsView(rows=(), as_of=AS_OF)
    cell.plan.replies["queue"] = QueueView(waiting=0, running=0, rows=(), as_of=AS_OF)
    assert cell.run("hosts").code == cell.run("queue").code == OK


def test_a_bus_that_is_away_is_69_and_says_how_to_start_one(cell: Cell) -> None:
    unknown = cell.run("queue", FAIRLEASE_HOME=str(cell.home / "empty"))
    assert (unknown.code, "fairlease up" in unknown.err) == (AWAY, True)
    silent = cell.run("queue", "--json", FAIRLEASE_URL="nats://127.0.0.1:1")
    assert (silent.code, "fairlease up" in json.loads(silent.err)["text"]) == (AWAY, True)
    for wrong in ("::::", "nats://", "nats://host:port"):
        assert cell.run("queue", FAIRLEASE_URL=wrong).code == AWAY


def test_a_cell_without_an_explainer_is_69(cell: Cell) -> None:
    seen = cell.run("queue", FAIRLEASE_CELL="other")
    assert (seen.code, "no explainer answers in cell other" in seen.err) == (AWAY, True)


@pytest.mark.parametrize(
    ("words", "command", "body"),
    [
        ("job cancel job-x", "local/cancel-job", {"job": "job-x"}),
        ("job hold job-x --reason data", "local/hold-job", {"job": "job-x", "reason": "data"}),
        (
            "evaluation record mmlu --outcome passed --score 0.87 --request-id e1",
            "local/record-evaluation",
            {"request_id": "e1", "evaluation": "mmlu", "outcome": "passed", "score_permille": 870},
        ),
        ("job hold job-x", "local/hold-job", {"job": "job-x"}),
        ("job release job-x", "local/release-job", {"job": "job-x"}),
        ("budget member a bob", "local/change-member", {"budget": "a", "account": "bob", "role": "member"}),
        ("budget member a * --role lead", "local/change-member", {"budget": "a", "account": "*", "role": "lead"}),
        ("budget member a bob --role none", "local/change-member", {"budget": "a", "account": "bob", "role": ""}),
        ("host cordon host-1 --reason fan", "local/cordon-host", {"host": "host-1", "reason": "fan"}),
        ("host cordon host-1", "local/cordon-host", {"host": "host-1"}),
        ("host drain host-1 --reason fan", "local/request-drain", {"host": "host-1", "reason": "fan"}),
        ("host undrain host-1", "local/undrain-host", {"host": "host-1"}),
        ("host return host-1 --account ci", "ci/return-host", {"host": "host-1"}),
        ("budget set a --weight 3", "local/change-budget", {"budget": "a", "weight": 3}),
        (
            "budget set a --weight 3 --parent org --reason more",
            "local/change-budget",
            {"budget": "a", "weight": 3, "parent": "org", "reason": "more"},
        ),
    ],
)
def test_a_wish_is_one_message_in_the_inbox(cell: Cell, words: str, command: str, body: dict[str, object]) -> None:
    seen = cell.run(*words.split())
    assert (seen.code, cell.plan.commands) == (OK, [(command, body)])
    assert "accepted" in seen.out


def test_a_wish_with_nothing_to_do_says_so_and_is_no_failure(cell: Cell) -> None:
    cell.plan.outcome = "unchanged"
    seen = cell.run("host", "undrain", "host-1")
    assert (seen.code, seen.err) == (OK, "")
    assert seen.out.startswith("calling off the drain of host-1: unchanged, there was nothing to do")


def test_a_deadline_before_the_start_of_a_drain_is_told_in_the_words_of_the_options(cell: Cell) -> None:
    seen = cell.run("host", "drain", "host-1", "--not-before", "10m", "--deadline", "5m")
    assert (seen.code, cell.plan.commands) == (USAGE, [])
    assert seen.err == (
        "fairlease: --deadline 5m is before --after 10m: both count from now\n"
        "  write a deadline of 10m or later, or none\n"
    )


def test_the_account_of_the_environment_sends(cell: Cell) -> None:
    assert cell.run("job", "cancel", "job-x", FAIRLEASE_ACCOUNT="ci").code == OK
    assert cell.plan.commands[0][0] == "ci/cancel-job"


def test_a_refused_wish_is_1_with_field_rule_and_way_out(cell: Cell) -> None:
    cell.plan.outcome = "refused"
    cell.plan.problems = (Problem(field="weight", rule="2.1", value="0", limit=">= 1", way_out="write 1 or more"),)
    seen = cell.run("budget", "set", "a", "--weight", "0")
    assert (seen.code, seen.out) == (FAILED, "")
    assert seen.err == "fairlease: budget a: refused\n  weight '0' (rule 2.1, >= 1): write 1 or more\n"
    told = cell.run("budget", "set", "a", "--weight", "0", "--json")
    assert json.loads(told.out)["outcome"] == "refused"
    assert json.loads(told.err)["problems"][0]["rule"] == "2.1"


def test_an_account_without_an_inbox_is_77_with_the_way_out(cell: Cell) -> None:
    seen = cell.run("job", "cancel", "job-x", "--account", "nobody")
    assert seen.code == FORBIDDEN
    assert (
        "stop the cell (Ctrl-C; running jobs go on) and start it again with `fairlease up --account nobody`" in seen.err
    )


def test_an_answer_that_does_not_come_is_75_and_the_command_is_not_lost(cell: Cell) -> None:
    cell.plan.is_mute = True
    seen = cell.run("job", "cancel", "job-x", "--answer-timeout", "200ms")
    assert (seen.code, "will be answered" in seen.err) == (LATER, True)


def test_a_reader_that_went_away_is_no_error(cell: Cell) -> None:
    cell.plan.replies["queue"] = msgspec.structs.replace(QUEUE, rows=QUEUE.rows * 1_000)
    with cell.start("queue") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_terminal_that_knows_no_letters_still_gets_an_answer(cell: Cell) -> None:
    cell.plan.replies["policy"] = PolicyView(name="策略", policy={}, as_of=AS_OF)
    with cell.start("policy", "show", PYTHONIOENCODING="ascii") as process:
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, "\\u7b56" in out) == (OK, True)
