"""A run of a workload as a crew carries it out: the report, or in words why the workload or the policy forbids it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlease.simulator.crew import Tell, Wrong
from fairlease.simulator.engine import Stuck
from fairlease.simulator.machines import SimulationWrong
from fairlease.simulator.runs import simulate_lab
from fairlease_schemas.policy import Policy


def play_lab(
    on_done: Tell,
    *,
    policy: str,
    seed: int,
    hosts: int,
    measured_ms: int | None,
    warm_up_ms: int | None,
    numbers: Policy | None = None,
    file: Path | None = None,
    over: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One run of the reference workload, or a file's; Wrong when the workload or the policy does not allow it."""
    try:
        return simulate_lab(
            policy=policy,
            seed=seed,
            hosts=hosts,
            measured_ms=measured_ms,
            warm_up_ms=warm_up_ms,
            file=file,
            over=over,
            numbers=numbers,
            tell=on_done,
        )
    except (SimulationWrong, Stuck) as error:
        raise Wrong(str(error)) from error
