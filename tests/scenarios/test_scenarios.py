"""Faults that users of other schedulers reported: what must happen here instead, line by line."""

from itertools import zip_longest
from pathlib import Path

import pytest

from fairlease.replay.verify import verify
from tests.dsl.scenario import Stage, read

FILES = sorted(Path(__file__).parent.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_fault_seen_elsewhere_comes_out_right(path: Path) -> None:
    scenario = read(path)
    stage = Stage(scenario)
    log = stage.play(scenario.timeline)
    if log != list(scenario.log):
        pytest.fail(f"{path.name}: {scenario.symptom}\n{side_by_side(list(scenario.log), log)}", pytrace=False)
    report = verify(enumerate(stage.records, 1))
    assert (report.positions, report.divergences) == (len(stage.records), 0)
    again = Stage(scenario)
    again.play(scenario.timeline)
    assert again.records == stage.records


def side_by_side(expected: list[str], found: list[str]) -> str:
    """Both logs, line against line; `*` marks where they part."""
    width = max(map(len, expected), default=8)
    pairs = zip_longest(expected, found, fillvalue="")
    rows = [f"{' ' if one == other else '*'} {one:<{width}} | {other}" for one, other in pairs]
    return "\n".join([f"  {'expected':<{width}} | found", *rows])
