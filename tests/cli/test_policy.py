"""`policy set`, `proposals` and `accept`: what is sent, and what is told of numbers that are none."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlease.cli.exits import CONTRACT, FAILED, OK, USAGE
from fairlease_schemas.explain import NumberChange, PolicyView, ProposalRow, ProposalsView, ReportRow
from fairlease_schemas.job import Problem
from fairlease_schemas.policy import Policy
from fairlease_schemas.simulated import BudgetFigures, Figures, Source
from fairlease_schemas.units import DAY_MS
from tests.cli.cell import AS_OF, Cell

IN_FORCE = msgspec.structs.asdict(Policy(patience_ms=1_000)) | {
    "window_bounds": [msgspec.structs.asdict(bound) for bound in Policy().window_bounds]
}


BEFORE = Figures(windows_broken=0, loops=0, promises_broken=0, fulfilment_permille=981, wait_p90_ms=3_600_000)
REPORT = ReportRow(
    digest="ef" * 32,
    at_ms=AS_OF.log_time_ms,
    author="bob",
    source=Source.LOG,
    span_ms=2 * DAY_MS,
    before=BEFORE,
    after=msgspec.structs.replace(BEFORE, fulfilment_permille=990),
    budgets=(
        BudgetFigures(budget="vision", before_permille=910, after_permille=1_012),
        BudgetFigures(budget="made", before_permille=None, after_permille=None),
    ),
)
ROW = ProposalRow(
    proposal="wider",
    author="ann",
    at_ms=AS_OF.log_time_ms,
    position=812,
    log_digest="ab" * 32,
    change="cd" * 32,
    changes=({"type": "change-budget", "budget": "vision", "weight": 3},),
    numbers=((),),
    reports=(REPORT,),
    forced_by="",
    is_stale=False,
)


@pytest.fixture(autouse=True)
def in_force(cell: Cell) -> None:
    cell.plan.replies["policy"] = PolicyView(name="quick", policy=IN_FORCE, as_of=AS_OF)
    cell.plan.replies["proposals"] = ProposalsView(rows=(), as_of=AS_OF)


def sent(cell: Cell, *words: str) -> tuple[str, dict[str, Any]]:
    seen = cell.run(*words)
    assert seen.code == OK, seen.err
    ((verb, body),) = cell.plan.commands
    return verb, body


def test_numbers_are_set_on_top_of_those_in_force(cell: Cell) -> None:
    words = ("policy", "set", "wide", "--set", "margin_permille=50", "--set", "lease-ms=90s", "--reason", "calmer")
    verb, body = sent(cell, *words)
    assert (verb, body["name"], body["reason"]) == ("local/change-policy", "wide", "calmer")
    assert body["policy"] == {"margin_permille": 50, "lease_ms": 90_000, "patience_ms": 1_000}


def test_a_file_is_all_the_numbers_and_may_be_what_show_writes(cell: Cell, tmp_path: Path) -> None:
    plain, shown = tmp_path / "plain.yaml", tmp_path / "shown.json"
    plain.write_text("patience_ms: 10m\nchange_gate: reported\n")
    shown.write_bytes(msgspec.json.encode(PolicyView(name="x", policy={"patience_ms": 600_000}, as_of=AS_OF)))
    assert sent(cell, "policy", "set", "wide", str(plain))[1]["policy"] == {
        "patience_ms": 600_000,
        "change_gate": "reported",
    }
    cell.plan.commands.clear()
    assert sent(cell, "policy", "set", "wide", str(shown))[1]["policy"] == {"patience_ms": 600_000}


def test_a_proposal_carries_the_change(cell: Cell) -> None:
    verb, body = sent(cell, "policy", "set", "wide", "--set", "margin_permille=50", "--propose", "wider")
    assert (verb, body["proposal"]) == ("local/propose-change", "wider")
    (change,) = body["changes"]
    assert (change["type"], change["name"], change["policy"]["margin_permille"]) == ("change-policy", "wide", 50)


def test_a_budget_is_proposed_by_the_same_word(cell: Cell) -> None:
    verb, body = sent(cell, "budget", "set", "vision", "--weight", "3", "--propose", "heavier")
    assert (verb, body["proposal"]) == ("local/propose-change", "heavier")
    assert body["changes"] == [{"type": "change-budget", "budget": "vision", "weight": 3}]


def test_a_stroke_is_the_whole_cell(cell: Cell) -> None:
    verb, body = sent(cell, "budget", "member", "/", "ann", "--role", "lead")
    assert (verb, body) == ("local/change-member", {"budget": "/", "account": "ann", "role": "lead"})


def test_acceptance_names_a_report_or_force(cell: Cell) -> None:
    assert sent(cell, "policy", "accept", "wider", "--report", "ab" * 32) == (
        "local/accept-change",
        {"proposal": "wider", "report": "ab" * 32},
    )
    cell.plan.commands.clear()
    body = sent(cell, "policy", "accept", "wider", "--force", "--reason", "now")[1]
    assert body == {"proposal": "wider", "is_forced": True, "reason": "now"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ("set", "wide", "--set", "margin_permille=50", "--propose", "wider"),
            "proposing wider: accepted; nothing has changed yet, next: fairlease policy simulate wider\n",
            id="a proposal",
        ),
        pytest.param(("accept", "wider"), "accepting wider: accepted\n", id="an acceptance"),
        pytest.param(
            ("accept", "wider", "--force"),
            "accepting wider: accepted; forced, it holds once two accounts have said so, and until then"
            " `fairlease policy proposals` lists it\n",
            id="a word that may be the first of two",
        ),
    ],
)
def test_what_does_not_hold_yet_says_so(cell: Cell, words: tuple[str, ...], said: str) -> None:
    assert cell.run("policy", *words).out == said


def test_a_proposed_budget_says_that_nothing_changed(cell: Cell) -> None:
    seen = cell.run("budget", "set", "vision", "--weight", "3", "--propose", "heavier")
    assert seen.out == "proposing heavier: accepted; nothing has changed yet, next: fairlease policy simulate heavier\n"


def test_a_refusal_names_the_rule_and_the_way_out(cell: Cell) -> None:
    cell.plan.outcome = "refused"
    cell.plan.problems = (Problem(field="name", rule="10.1", value="wide", limit="a proposal", way_out="simulate it"),)
    seen = cell.run("policy", "set", "wide", "--set", "margin_permille=50")
    assert seen.code == FAILED
    assert all(text in seen.err for text in ("policy wide: refused", "10.1", "simulate it"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("--set", "marjin=5"), CONTRACT, "policy.marjin: there is no such number", id="no such number"),
        pytest.param(("--set", "margin_permille=x"), CONTRACT, "'x' is no whole number", id="no number"),
        pytest.param(("--set", "margin_permille=5m"), CONTRACT, "'5m' is no whole number", id="a length of no time"),
        pytest.param(("--set", "patience_ms=5 parsecs"), CONTRACT, "policy.patience_ms", id="no length"),
        pytest.param(("--set", "margin_permille"), USAGE, "KEY=VALUE", id="no value"),
        pytest.param(("/nowhere.yaml",), USAGE, "No such file", id="no file"),
    ],
)
def test_what_is_no_policy_is_told_before_anything_is_sent(
    cell: Cell, words: tuple[str, ...], code: int, said: str
) -> None:
    seen = cell.run("policy", "set", "wide", *words)
    assert (seen.code, said in seen.err) == (code, True), seen.err
    assert cell.plan.commands == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1\n", "no table of numbers"),
        ("patience_ms: [1]\n", "patience_ms"),
        ("patience_ms: 1\npatience_ms: 2\n", "second time"),
        ("", "empty"),
    ],
)
def test_a_file_that_is_no_policy_is_65(cell: Cell, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    seen = cell.run("policy", "set", "wide", str(path))
    assert (seen.code, said in seen.err) == (CONTRACT, True), seen.err


def test_proposals_are_shown_with_what_stands_in_their_way(cell: Cell) -> None:
    stale = msgspec.structs.replace(ROW, proposal="old", is_stale=True, reports=())
    forced = msgspec.structs.replace(ROW, proposal="urgent", forced_by="bob", reports=())
    cell.plan.replies["proposals"] = ProposalsView(rows=(ROW, stale, forced), as_of=AS_OF)
    lines = cell.run("policy", "proposals").out.splitlines()
    assert [word in line for word, line in zip(("reported", "stale", "forced by bob"), lines[1:], strict=False)] == [
        True
    ] * 3
    assert "budget vision weight=3" in lines[1]
    assert "ef" * 32 in lines[1]
    cell.plan.replies["proposals"] = ProposalsView(rows=(), as_of=AS_OF)
    assert "no open proposals" in cell.run("policy", "proposals").out


def test_of_a_policy_that_is_proposed_only_what_it_changes_is_shown(cell: Cell) -> None:
    """Numbers that are as they are in force stand in the command too, and would hide the one that is not."""
    # rule: 10.1
    numbers = (
        NumberChange(number="due_first_permille", now=500, then=0),
        NumberChange(number="patience_ms", now=60_000, then=300_000),
        NumberChange(number="change_gate", now="reported", then=""),
    )
    command = {"type": "change-policy", "name": "zero", "policy": {"margin_permille": 7}}
    row = msgspec.structs.replace(ROW, changes=(command,), numbers=(numbers,))
    same = msgspec.structs.replace(ROW, proposal="same", changes=(command,), numbers=((),))
    cell.plan.replies["proposals"] = ProposalsView(rows=(row, same), as_of=AS_OF)
    out = cell.run("policy", "proposals").out
    told = 'policy zero: due_first_permille 500 to 0, patience_ms 1m to 5m, change_gate "reported" to ""'
    assert told in " ".join(out.split())
    assert "policy zero: the numbers in force" in out
    assert "margin_permille" not in out


def row_of(text: str, figure: str) -> list[str]:
    """The two cells of a figure."""
    return next(line for line in text.splitlines() if line.startswith(figure)).removeprefix(figure).split()


def test_what_the_newest_report_found_stands_below_the_proposals(cell: Cell) -> None:
    # rule: 10.1
    older = msgspec.structs.replace(REPORT, digest="12" * 32, author="eve")
    cell.plan.replies["proposals"] = ProposalsView(
        rows=(msgspec.structs.replace(ROW, reports=(older, REPORT)),), as_of=AS_OF
    )
    out = cell.run("policy", "proposals").out
    assert "wider, report efefefefefef of bob: 2d of the cell's own log" in out
    assert "1212121212121 of eve" not in out
    assert row_of(out, "fulfilment of vision") == ["0.910", "1.012"]
    assert row_of(out, "fulfilment of made") == ["-", "-"]
    assert row_of(out, "fulfilment ") == ["0.981", "0.990"]
    assert row_of(out, "wait p90") == ["1h", "1h"]


def test_whoever_accepts_is_shown_what_the_report_found_budget_by_budget(cell: Cell) -> None:
    # rule: 10.1
    newer = msgspec.structs.replace(REPORT, digest="12" * 32, budgets=())
    cell.plan.replies["proposals"] = ProposalsView(
        rows=(msgspec.structs.replace(ROW, reports=(REPORT, newer)),), as_of=AS_OF
    )
    out = cell.run("policy", "accept", "wider", "--report", REPORT.digest).out
    assert row_of(out, "fulfilment of vision") == ["0.910", "1.012"]
    assert out.endswith("accepting wider: accepted\n")
    assert "vision" not in cell.run("policy", "accept", "wider", "--force").out, "the newest where none is named"


@pytest.mark.parametrize("form", [("-q",), ("-o", "json")])
def test_programs_that_accept_are_told_the_answer_alone(cell: Cell, form: tuple[str, ...]) -> None:
    cell.plan.replies["proposals"] = ProposalsView(rows=(ROW,), as_of=AS_OF)
    seen = cell.run("policy", "accept", "wider", "--report", REPORT.digest, *form)
    assert (seen.code, "vision" in seen.out) == (OK, False)
