"""The training script of examples/ under an agent: stopped, killed, resumed, and the same to the last bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import fairlease_sdk
from fairlease.agent import layout, saved
from fairlease.agent.contracts import INHERITED
from fairlease_schemas.contract import read_contract
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import CheckpointDone
from tests.agent.bench import Bench, until
from tests.house.tree import ROOT

SCRIPT = ROOT / "examples/train.py"
STEPS, EVERY = 400, 50
ENV = {"PYTHONPATH": str(Path(fairlease_sdk.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}


def command(*more: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPT), "--steps", str(STEPS), "--every", str(EVERY), *more)


@pytest.fixture
def uninterrupted(tmp_path: Path) -> bytes:
    """What the run ends with when nobody disturbs it."""
    where = tmp_path / "alone"
    where.mkdir()
    # A run has no more of the agent's environment than this, and a variable of a library may change the last bit.
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    subprocess.run(command(), cwd=where, env={**env, **ENV}, check=True, capture_output=True)
    return (where / "weights.bin").read_bytes()


def attempts(bench: Bench, count: int) -> list[RunOrder]:
    """Attempts of one job that make it last: a pause after each step."""
    checkpoint = {"uri": "store:local/spiral", "signal": "none"}
    first = bench.part("a", command("--pause-ms", "4"), env=ENV, checkpoint=checkpoint)
    return [replace(first, attempt=f"job-a-a{number}") for number in range(1, count + 1)]


def steps(bench: Bench, part: RunOrder) -> list[int]:
    return [report.step for report in bench.of(part, CheckpointDone)]


def weights(bench: Bench, part: RunOrder) -> bytes:
    return (bench.directory(part).path / layout.WORK / "weights.bin").read_bytes()


@pytest.mark.asyncio
async def test_a_run_stopped_twice_ends_with_the_bytes_of_one_that_was_not(
    bench: Bench, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 8.1 8.2 8.3
    monkeypatch.setattr(saved, "EVERY_S", 0.02)
    parts = attempts(bench, 3)
    last = 0
    for part in parts[:2]:
        bench.order(part)
        await until(lambda part=part: steps(bench, part), "it has saved something")  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        bench.order(bench.stop(part, grace_ms=60_000, reason="preempted"))
        gone = await bench.gone(part)
        assert (gone.end, gone.exit_code) == (End.CANCELLED, 85)
        assert f"begins at step {last} of" in bench.log(part)
        last = steps(bench, part)[-1]
        assert f"saved step {last} and leaves: preempted" in bench.log(part)
    bench.order(parts[2])
    gone = await bench.gone(parts[2])
    assert (gone.end, gone.exit_code) == (End.SUCCEEDED, 0)
    assert f"begins at step {last} of" in bench.log(parts[2])
    assert weights(bench, parts[2]) == uninterrupted


@pytest.mark.asyncio
async def test_a_run_killed_in_the_middle_loses_what_it_had_not_saved_and_ends_the_same(
    bench: Bench, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 8.2 8.3
    monkeypatch.setattr(saved, "EVERY_S", 0.02)
    first, second = attempts(bench, 2)
    bench.order(first)
    await until(lambda: steps(bench, first), "it has saved something")
    leader = bench.directory(first).leader()
    assert leader is not None
    os.kill(leader.pid, signal.SIGKILL)
    assert (await bench.gone(first)).exit_code == 137
    bench.order(second)
    assert (await bench.gone(second)).exit_code == 0
    begun = int(bench.log(second).split()[3])
    assert begun % EVERY == 0
    assert begun >= steps(bench, first)[-1]  # it may have been killed between its manifest and its word to the agent
    assert weights(bench, second) == uninterrupted


def test_its_contract_is_one() -> None:
    from ruamel.yaml import YAML

    data = YAML(typ="safe").load(ROOT / "examples/train.yaml")
    checked, problems = read_contract(data)
    assert problems == ()
    assert checked is not None
    assert (checked.spec.checkpoint.uri, checked.spec.resumable) == ("store:local/spiral", True)
