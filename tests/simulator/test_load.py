"""The load test of the simulator, with next to no load: it measures what its profile limits."""

import tomllib

import pytest

from tests.house.tree import ROOT

LOAD = {"trace_hosts": 96, "trace_jobs": 40, "lab_hosts": 4, "lab_days": 0.1, "replay_days": 0.1, "seed": 1}


def test_every_limit_of_the_profile_has_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "loadtests"))
    import simulated

    profile = tomllib.loads((ROOT / "loadtests/profiles/simulator.toml").read_text(encoding="utf-8"))
    assert profile["load"].keys() == LOAD.keys()
    figures = {figure.name: figure for figure in simulated.simulated(LOAD)}
    assert figures.keys() == profile["limits"].keys()
    assert all(figure.value is not None and figure.value > 0 for figure in figures.values())
    assert figures["trace_jobs_per_s"].beside["jobs"] == 40
