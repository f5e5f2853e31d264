"""The page of a suite: every number in a table, pictures that need no colour, and nothing that is not in the result."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlease.simulator.page.robustness import FAIR, GAINED, WAITS, part, pictures
from fairlease.simulator.page.words import FIGURES
from fairlease.simulator.robustness import opened
from fairlease_schemas.comparison import Range
from fairlease_schemas.robustness import Case, Lacking, Missed, Robustness
from tests.house.tree import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def case(*, gains: tuple[float, float, float] | None = None, **figures: float | None) -> Case:
    """All figures are 0.95 but those that are said, with `__` for a point."""
    told: dict[str, Range] = {name: Range(median=0.95, min=0.9, max=1.0) for name in FIGURES}
    told |= {name: Range(median=0, min=0, max=0) for name in told if "breaks" in name or "loops" in name}
    told["promises.broken"] = Range(median=0, min=0, max=0)
    for name, value in figures.items():
        told[name.replace("__", ".")] = Range(median=value, min=value, max=value)
    if gains is not None:
        held, useful, beyond = gains
        told["gain.held"] = Range(median=held, min=round(held - 0.01, 6), max=round(held + 0.02, 6))
        told["gain.useful"] = Range(median=useful, min=useful, max=useful)
        told["gain.beyond"] = told["gain.cost_to_others"] = Range(median=beyond, min=beyond, max=beyond)
    return Case(says="as <it> is", hosts=11, gpus=88, workload_digest="w", figures=told, runs=())


def found(cases: dict[str, Case], **more: Any) -> Robustness:  # noqa: ANN401 - a field of the result
    told: dict[str, Any] = {
        "suite": "s.toml",
        "suite_digest": "s",
        "policy": "budget-window",
        "hosts": 11,
        "days": 5.0,
        "warm_up_days": 1.0,
        "seeds": (21, 22),
        "missed": (),
        "missing": (),
        "digest": "d",
        **more,
    }
    return Robustness(cases=cases, **told)


def test_the_part_says_how_to_have_it_again_what_was_found_and_what_was_not_played() -> None:
    missed = Missed(case="games", figure="gain.held", value=0.031, least=None, most=0.02, seed=None)
    lacking = Lacking(case="games", seed=22, is_honest=True, why="killed")
    cases = {"plain": case(wait__gangs_128__p90_s=None), "games": case(gains=(0.031, -0.05, 0.0))}
    text = part(found(cases, missed=(missed,), missing=(lacking,)), ("plain", "games", "gpus-4096"))
    command = (
        "fairlease robust --policy budget-window --seeds 21,22 --hosts 11x8 --days 5 --warm-up 1 --cases plain,games"
    )
    assert command in text
    assert "| `plain` | as <it> is | 88 | 95.0 % | 95.0 % | 0.95 |" in text
    assert "| `games` | +3.1 % | +2.1 % to +5.1 % | -5.0 % | +0.0 % | +0.0 % |" in text
    assert "- `games`: gain.held of the median is +3.1 %, must be at most +2.0 %" in text
    assert "Not played: `gpus-4096`." in text
    assert "No figures: `games`, seed 22: killed." in text
    assert "Every limit was kept." in part(found({"plain": case()}), ("plain",))


def test_the_worst_run_is_what_is_told_as_broken() -> None:
    worst = case()
    worst.figures["promises.broken"] = Range(median=0, min=0, max=2)
    row = next(line for line in part(found({"plain": worst}), ("plain",)).splitlines() if line.startswith("| `plain`"))
    assert row.endswith("| 0, 0, 2 |")


def test_pictures_have_a_shape_for_each_number_and_say_it_all_in_words_too() -> None:
    cases = {"plain": case(wait__gangs_128__p90_s=None), "games": case(gains=(0.03, -0.01, 0.0))}
    drawn = pictures(found(cases), 0.02)
    assert set(drawn) == {FAIR, WAITS, GAINED}
    for text in drawn.values():
        sheet = ET.fromstring(text)
        assert sheet.findtext(f"{SVG}title")
        assert "games" in (sheet.findtext(f"{SVG}desc") or "")
    legend = 3
    marks = [one.get("transform") for one in ET.fromstring(drawn[FAIR]).iter(f"{SVG}path") if one.get("transform")]
    assert len(marks) == legend + 3 * 2
    marks = [one.get("transform") for one in ET.fromstring(drawn[WAITS]).iter(f"{SVG}path") if one.get("transform")]
    assert len(marks) == 4 + 3 + 4  # nobody drew the wait that there is not
    assert set(pictures(found({"plain": case()}), 0.02)) == {FAIR, WAITS}


def test_a_gain_lies_where_its_number_is() -> None:
    """The scale goes to 5 % on either side: 2.5 % is a quarter of the width right of the middle."""
    sheet = ET.fromstring(pictures(found({"games": case(gains=(0.025, -0.05, 0.0))}), 0.02)[GAINED])
    (limit,) = (one.get("d") for one in sheet.iter(f"{SVG}path") if one.get("class") == "limit")
    assert str(limit).startswith("M660.0 ")
    bars = {one.get("class"): one.get("d") for one in sheet.iter(f"{SVG}path") if "z" in str(one.get("d"))[-1:]}
    assert bars["full"] == "M520.0 68H695.0v12H520.0z"
    assert bars["hollow"] == "M520.0 84H170.0v12H520.0z"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module of loadtests
    monkeypatch.syspath_prepend(str(ROOT / "loadtests"))
    monkeypatch.delitem(sys.modules, "robustness", raising=False)
    import robustness

    return robustness


def test_the_page_in_the_tree_is_what_the_program_writes_of_the_result_in_the_tree(
    program: Any,  # noqa: ANN401 - as above
) -> None:
    result = msgspec.json.decode((ROOT / "loadtests/robustness.json").read_bytes(), type=Robustness)
    for name, text in program.written(result, (ROOT / "docs/policy.md").read_text(encoding="utf-8")).items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, name
    assert set(result.cases) <= set(opened(None).suite.case)


def test_the_program_plays_keeps_the_result_and_writes_the_page(
    program: Any,  # noqa: ANN401 - as above
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    page = tmp_path / "policy.md"
    page.write_text(f"# A\n\n{program.BEGIN}old\n{program.END}behind\n", encoding="utf-8")
    monkeypatch.setattr(program, "PAGE", page)
    monkeypatch.setattr(program, "RESULT", tmp_path / "result.json")
    tiny = ("--hosts", "2x8", "--days", "0.02", "--warm-up", "0.01", "--seeds", "21", "--workers", "1")
    assert program.main(["--cases", "as-it-is,delays", *tiny]) in (0, 1)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# A\n")
    assert text.endswith(f"{program.END}behind\n")
    assert "old" not in text
    assert "--cases as-it-is,delays" in text
    before = text
    assert program.main(["--from", str(tmp_path / "result.json")]) == 0
    assert page.read_text(encoding="utf-8") == before
    assert (tmp_path / FAIR).exists()
