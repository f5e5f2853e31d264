"""The clients of examples/ci and examples/bot at a cell that says what a test wants; with a real one: tests/live."""

import argparse
import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nats.errors
import pytest

from tests.house.tree import ROOT

EXAMPLES = ROOT / "examples"
PIPELINE = {"GITHUB_REPOSITORY": "vision/train", "GITHUB_RUN_ID": "1", "GITHUB_RUN_ATTEMPT": "1"}
CONTRACT = {"apiVersion": "fairlease/v1", "kind": "Job", "spec": {"budget": "vision"}}


def loaded(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An example as a module; it looks quickly at what it would look at every five seconds."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLES)])
    spec = importlib.util.spec_from_file_location(Path(path).stem, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    return module


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("FAIRLEASE_DOTENV", str(tmp_path / "fairlease.env"))
    for name, value in PIPELINE.items():
        monkeypatch.setenv(name, value)
    for name in ("GITLAB_CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    return loaded("ci/pipeline.py", monkeypatch)


@pytest.fixture
def bot(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("bot/maintain.py", monkeypatch)


class Feed:
    """A subscription: these messages, then `always` every 5 ms, or silence."""

    def __init__(self, *said: dict[str, Any], always: dict[str, Any] | None = None) -> None:
        self.said, self.always = list(said), always

    async def next_msg(self, timeout: float) -> Any:  # noqa: ANN401, ASYNC109 - nats-py's own
        if self.said:
            return SimpleNamespace(data=json.dumps(self.said.pop(0)).encode())
        if self.always is None:
            await asyncio.sleep(timeout)
            raise nats.errors.TimeoutError
        await asyncio.sleep(0.005)
        return SimpleNamespace(data=json.dumps(self.always).encode())

    async def unsubscribe(self) -> None:
        """Nothing is told any more."""


class Cell:
    """What the cell answers, in turn: to commands, to questions."""

    account = "ci"

    def __init__(self, feed: Any, commands: Iterable[dict[str, Any]], views: Iterable[Any] = ()) -> None:  # noqa: ANN401 - a Feed
        self.feed, self.commands, self.views = feed, list(commands), list(views)
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def follow(self, _subject: str) -> Any:  # noqa: ANN401 - a Feed
        return self.feed

    async def command(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        self.sent.append((verb, body))
        return self.commands.pop(0)

    async def ask(self, _question: str, _body: dict[str, Any]) -> Any:  # noqa: ANN401 - a view
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


def place(position: int) -> dict[str, Any]:
    return {"as_of": {"epoch": 1, "position": position}}


RUNNING, OVER = {"state": "running"}, {"state": "succeeded", "exit_code": 0}
ACCEPTED = {"outcome": "accepted", "problems": []}


async def test_an_end_that_a_busy_feed_lost_is_asked_for(pipeline: ModuleType) -> None:
    feed = Feed(always={"job": "job-of-somebody-else", "state": "running"})
    step = pipeline.Step(Cell(feed, [ACCEPTED], [RUNNING, OVER]), CONTRACT)
    async with asyncio.timeout(5):
        assert await step.run() == 0


async def test_an_end_that_the_feed_tells_is_not_waited_for_longer(
    pipeline: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LOOK_S", 60.0)
    request = pipeline.Step(Cell(Feed(), []), CONTRACT).request_id
    end = {"job": pipeline.job_id("ci", "vision", request), "state": "failed", "exit_code": -9}
    step = pipeline.Step(Cell(Feed(end), [ACCEPTED], [RUNNING]), CONTRACT)
    async with asyncio.timeout(5):
        assert await step.run() == 137


async def test_an_explainer_that_knows_nothing_yet_is_asked_again(
    pipeline: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    step = pipeline.Step(Cell(Feed(), [ACCEPTED], [None, {"kind": "Trouble"}, {"kind": "Trouble"}, OVER]), CONTRACT)
    async with asyncio.timeout(5):
        assert await step.run() == 0
    assert [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["succeeded"]


class Deaf(Feed):
    """A feed whose library drops the first cancellation, as `asyncio.wait_for` of Python 3.11 may."""

    async def next_msg(self, timeout: float) -> Any:  # noqa: ANN401, ASYNC109 - nats-py's own
        try:
            await asyncio.sleep(timeout)
        except asyncio.CancelledError:
            return SimpleNamespace(data=b'{"job": "job-of-somebody-else"}')
        raise nats.errors.TimeoutError


async def test_a_cancellation_that_the_library_lost_ends_the_step(
    pipeline: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LOOK_S", 60.0)
    step = pipeline.Step(Cell(Deaf(), [ACCEPTED], [RUNNING]), CONTRACT)
    running = asyncio.create_task(step.run())
    await asyncio.sleep(0.05)
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=5)
    assert done == {running}
    assert running.cancelled()


@pytest.mark.parametrize(("field", "code"), [("admission", 75), ("spec.hosts", 200)])
async def test_a_cell_that_takes_no_new_work_now_is_no_fault_of_the_contract(
    pipeline: ModuleType, field: str, code: int
) -> None:
    problem = {"field": field, "rule": "L3", "way_out": "later"}
    step = pipeline.Step(Cell(Feed(), [{"outcome": "refused", "problems": [problem]}], [RUNNING]), CONTRACT)
    assert await step.run() == code


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(None, "No such file", id="no file"),
        pytest.param("\t{", "is no JSON", id="no contract"),
        pytest.param("[1]", "is no contract", id="a list"),
        pytest.param('{"spec": {}}', "no budget to charge", id="no budget"),
        pytest.param('{"spec": {"budget": "a", "array": {"count": 2}}}', "spec.array makes many jobs", id="an array"),
    ],
)
def test_what_is_no_contract_of_one_job_is_told_with_the_way_out(
    pipeline: ModuleType, tmp_path: Path, text: str | None, told: str
) -> None:
    if text is not None:
        (tmp_path / "job.json").write_text(text)
    with pytest.raises(pipeline.Unfit, match=told):
        pipeline.contract_of(str(tmp_path / "job.json"), "", "")


def test_outside_of_a_pipeline_the_variable_that_is_missing_is_named(
    pipeline: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_RUN_ID")
    with pytest.raises(pipeline.Unfit, match="GITHUB_RUN_ID is not set: this runs as a step"):
        pipeline.request_id()


def news(position: int, state: str | None) -> dict[str, Any]:
    return {"host": "host-1", "drain": {"state": state} if state else None, **place(position)}


def asked(position: int, state: str | None) -> dict[str, Any]:
    """The same as a view of all hosts."""
    return {"rows": [{key: value for key, value in news(0, state).items() if key != "as_of"}], **place(position)}


def drained(state: str) -> dict[str, Any]:
    return {**ACCEPTED, "drain": {"state": state}, **place(7)}


@pytest.mark.parametrize(
    ("feed", "views"),
    [
        pytest.param(Feed(news(6, None), news(8, "draining"), news(9, "drained")), [], id="told, and something older"),
        pytest.param(Feed(), [None, {"kind": "Trouble"}, asked(6, None), asked(9, "drained")], id="asked for"),
        pytest.param(Feed(always=news(8, "draining")), [asked(9, "drained")], id="lost by a busy feed"),
    ],
)
async def test_a_host_is_empty_once_its_drain_says_so(bot: ModuleType, feed: Feed, views: list[Any]) -> None:
    async with asyncio.timeout(5):
        assert await bot.empty(Cell(feed, [drained("planned")], views), "host-1") == ""


@pytest.mark.parametrize(("feed", "views"), [(Feed(news(8, None)), []), (Feed(), [asked(8, None)])])
async def test_a_drain_that_somebody_called_off_is_not_waited_for(
    bot: ModuleType, feed: Feed, views: list[Any]
) -> None:
    async with asyncio.timeout(5):
        assert await bot.empty(Cell(feed, [drained("draining")], views), "host-1") == "its drain was called off"


async def serviced(bot: ModuleType, monkeypatch: pytest.MonkeyPatch, cell: Cell, *words: str) -> int:
    """What the bot ends with, at this cell and by these words."""
    cell.open = cell.close = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]  # what main calls besides
    monkeypatch.setattr(bot.CellClient, "of_environment", lambda: cell)
    monkeypatch.setattr(sys, "argv", ["maintain.py", *words])
    return int(await bot.main())


async def test_the_bot_ends_where_a_host_stays_out(
    bot: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A work that always fails would else take the whole cell out, host by host."""
    cell = Cell(Feed(), [drained("drained")])
    words = ("host-1", "host-2", "host-3", "--work", "/nowhere/program {host}")
    assert await serviced(bot, monkeypatch, cell, *words) == 1
    assert [verb for verb, _ in cell.sent] == ["request-drain"]
    said = capsys.readouterr().out
    assert "the work ended with 127; it stays out: /nowhere/program: No such file or directory" in said
    assert "ended at host-1; 2 more were not looked at" in said


async def test_a_host_without_work_or_checks_is_emptied_and_given_back(
    bot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(Feed(), [drained("drained"), ACCEPTED] * 2)
    assert await serviced(bot, monkeypatch, cell, "host-1", "host-2") == 0
    assert [(verb, body["host"]) for verb, body in cell.sent] == [
        (verb, host) for host in ("host-1", "host-2") for verb in ("request-drain", "return-host")
    ]


async def test_a_check_that_cannot_be_run_is_unknown(bot: ModuleType) -> None:
    found = await bot.checked(bot.check_of("memory=/nowhere/check {host}"), "host-1")
    assert (found["name"], found["code"], found["output"]) == ("memory", 3, "/nowhere/check: No such file or directory")


@pytest.mark.parametrize("text", ["memory", "=true", "memory=", "memory='x"])
def test_what_is_no_check_is_told_before_any_host_is_emptied(bot: ModuleType, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        bot.check_of(text)
