"""What was typed by somebody else, on a terminal and in what programs read."""

import json
from pathlib import Path

import msgspec
import pytest
from ruamel.yaml import YAML

from fairlease.cli.exits import CONTRACT
from fairlease.cli.main import main
from fairlease.cli.output import print_data
from tests.hostile.corpus import hidden_in

NASTY = "a\x1b[2J\x7f\x9b2J\u202egnp\u2066\u2028\x85\ufeff\u200f \u4e2d\u6587 \U0001f600"
ROW = {"reason": NASTY, NASTY: 1}
VIEW = {"as_of": {"position": 1}, "rows": [ROW]}


@pytest.mark.parametrize("is_ascii", [True, False], ids=["escaped by the cell", "as it is"])
@pytest.mark.parametrize("form", ["json", "jsonl", "yaml"])
def test_data_is_the_same_to_a_program_and_commands_no_terminal(
    capsys: pytest.CaptureFixture[str], form: str, is_ascii: bool
) -> None:
    print_data(form, json.dumps(VIEW, ensure_ascii=is_ascii).encode(), ())
    shown = capsys.readouterr().out
    assert hidden_in(shown) == set()
    read = YAML(typ="safe", pure=True).load(shown) if form == "yaml" else json.loads(shown)
    assert read == (VIEW if form != "jsonl" else {**ROW, "as_of": VIEW["as_of"]})


def test_chinese_stays_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "yaml"):
        print_data(form, msgspec.json.encode({"reason": "\u4e2d\u6587"}), ())
        assert "\u4e2d\u6587" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("-o", "json")], ids=["words", "data"])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_name_of_a_file_commands_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], is_there: bool
) -> None:
    path = tmp_path / "\x1b[2J\u202e\x9b2J\nx.yaml"
    if is_there:
        path.write_text("spec: 5", encoding="utf-8")
    assert main(["submit", str(path), *words]) == CONTRACT
    told = capsys.readouterr().err
    assert hidden_in(told) == set()
    assert "x.yaml" in told
    if not words:
        assert not any(line.startswith("x.yaml") for line in told.splitlines())
    else:
        assert json.loads(told)["exit_code"] == CONTRACT
