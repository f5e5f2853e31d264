"""The demo's story does not hang on the machine's speed, and says where to look when it did not hold."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli import demo
from fairlease.cli.demo import Demo, Failed
from fairlease.cli.exits import CommandError
from fairlease.runtime.errors import ShellError

WHY = {"start_by_ms": 20_000, "state": "waiting", "counterfactuals": [{"change": {"hosts": 1}}]}
LATE = {"start_by_ms": None, "state": "running", "counterfactuals": []}


class _Typed(Demo):
    """A demo whose command line is made up: each claim is answered by the next of `whys`."""

    def __init__(self, home: Path, whys: list[dict[str, Any]], *, slowest_s: float = 0.1) -> None:
        super().__init__(home, is_quiet=True)
        self.slowest_s = slowest_s
        self.whys = whys
        self.windows: list[str] = []
        self.cancelled: list[str] = []

    async def type(self, *words: str, is_shown: bool = True) -> tuple[int, str]:
        if words[:2] == ("job", "cancel"):
            self.cancelled.append(words[2])
        return 0, ""

    async def submit(self, *words: str) -> str:
        budget = words[words.index("--budget") + 1]
        if budget == "speech":
            self.windows.append(words[words.index("--min-runtime") + 1])
        return f"{budget}-{len(self.windows)}"

    async def ask(self, *words: str) -> Any:  # noqa: ANN401 - the JSON of any view
        if words[0] == "why":
            return self.whys.pop(0)
        window_ms = 6_000
        attempt = {"end": "preempted", "granted_ms": 10_000, "ended_ms": 16_000, "window_ms": window_ms}
        return {"state": "running", "attempts": [attempt]}

    async def until(self, job: str, *states: str) -> dict[str, Any]:
        view: dict[str, Any] = await self.ask("job", "show", job)
        return view


async def test_a_claim_that_came_after_the_window_is_made_again_behind_a_longer_one(tmp_path: Path) -> None:
    told = _Typed(tmp_path, [LATE, WHY])
    assert await demo._promise(told, ["idle-1", "idle-2"]) == "speech-2"
    assert (told.windows, told.cancelled) == (["6s", "12s"], ["vision-1", "speech-1"])
    assert told.seen["promise"] == {"start_by_ms": 20_000, "granted_ms": 10_000, "kept": True}


async def test_the_window_is_as_long_as_a_slow_machine_needs_for_the_typing(tmp_path: Path) -> None:
    told = _Typed(tmp_path, [WHY], slowest_s=3.0)
    await demo._promise(told, ["idle-1", "idle-2"])
    assert told.windows == ["24s"]


async def test_the_tries_are_bounded(tmp_path: Path) -> None:
    told = _Typed(tmp_path, [LATE] * 9)
    with pytest.raises(Failed, match="in 3 tries; the last window was of 24 s"):
        await demo._promise(told, ["idle-1", "idle-2"])
    assert told.windows == ["6s", "12s", "24s"]


async def test_a_promise_that_was_not_kept_fails_the_demo(tmp_path: Path) -> None:
    told = _Typed(tmp_path, [WHY | {"start_by_ms": 9_000}])
    with pytest.raises(Failed, match=r"broken by 1\.00 s"):
        await demo._promise(told, ["idle-1", "idle-2"])


@pytest.mark.parametrize("error", [Failed("no promise"), CommandError(1, "no promise"), ShellError("no promise")])
def test_what_a_failed_demo_left_is_kept_and_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def failing(_demo: Demo, home: Path) -> None:
        (home / "some.log").write_text("what happened", encoding="utf-8")
        raise error

    monkeypatch.setattr(demo, "_in_a_cell", failing)
    with pytest.raises(Failed) as raised:
        demo.run(argparse.Namespace(output="table"))
    assert raised.value.text == "demo: no promise"
    found = re.search(r"kept in (\S+): file an issue", raised.value.way_out)
    assert found is not None
    assert [path.read_text(encoding="utf-8") for path in Path(found[1]).iterdir()] == ["what happened"]


def test_a_demo_that_held_leaves_nothing_and_reports_by_its_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    homes = []

    async def well(told: Demo, home: Path) -> None:
        homes.append(home)
        told.seen["window_breaks"] = 0

    monkeypatch.setattr(demo, "_in_a_cell", well)
    assert demo.run(argparse.Namespace(output="json")) == 0
    report = json.loads(capsys.readouterr().out)
    del report["wall_s"]
    assert report == {"apiVersion": "fairlease/v1", "kind": "DemoReport", "window_breaks": 0, "audit": None}
    assert not homes[0].exists()
