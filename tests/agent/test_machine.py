"""One agent for a host on its machine, wherever its state is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fairlease.agent import main
from fairlease.agent.machine import alone
from fairlease.runtime.errors import EXIT_CONFIG, ConfigWrong

HOLDS = """
import sys
from pathlib import Path
from fairlease.agent.machine import alone
with alone(sys.argv[1], "gpu-7", place=Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
CELL = f"test-{os.getpid()}"


@contextmanager
def other(place: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent in another process that has the host."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDS, CELL, place], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("is_file", [True, False], ids=["where files are root's", "by a name alone"])
def test_a_second_agent_of_a_host_is_refused_until_the_first_has_gone(tmp_path: Path, is_file: bool) -> None:
    # rule: 7.6
    place = tmp_path if is_file else tmp_path / "nothing"
    with other(place) as first:
        with (
            pytest.raises(ConfigWrong, match=f"another agent serves host gpu-7 of cell {CELL}"),
            alone(CELL, "gpu-7", patience_s=0, place=place),
        ):
            pass
        with alone(CELL, "gpu-8", patience_s=0, place=place), alone(f"{CELL}-b", "gpu-7", patience_s=0, place=place):
            pass
        first.kill()
        with alone(CELL, "gpu-7", place=place):
            pass


class Gpus:
    """The real GPUs of gpu-7, as far as an agent comes that does not start."""

    host = "gpu-7"

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_an_agent_with_another_state_directory_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # rule: 7.6
    gpus = Gpus()
    monkeypatch.setattr(main, "open_gpus", lambda *_: gpus)
    monkeypatch.setattr(main.telemetry, "configure", lambda _: None)  # which takes the log from this test
    monkeypatch.setattr(main, "alone", partial(alone, patience_s=0, place=tmp_path))
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("FAIRLEASE_CELL", CELL)
    with other(tmp_path):
        assert main.main() == EXIT_CONFIG
    assert "another agent serves host gpu-7" in caplog.text
    assert gpus.is_closed
