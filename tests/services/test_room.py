"""Room on the bus's disk: what was seen, whether it closes, and what admission says and records while it does."""

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairlease.admission.edge import Edge
from fairlease.runtime.bus import Message
from fairlease.runtime.room import PLENTY_MIB, Room, room_of
from fairlease.runtime.settings import BUS_FILE, Settings
from fairlease_schemas.codec import canonical
from fairlease_schemas.envelope import Misshapen, Submitted
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import JobRefused, Problem
from fairlease_schemas.subjects import Subjects
from tests.dsl.cell import Cell
from tests.services.bench import eventually

MIB = 1 << 20


def disk(monkeypatch: pytest.MonkeyPatch, used_permille: int, size_mib: int = 1_000) -> None:
    """From now on every file system looks like this."""
    free = size_mib - size_mib * used_permille // 1_000
    seen = SimpleNamespace(f_frsize=MIB, f_blocks=size_mib, f_bfree=free, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda _: seen)


def test_it_closes_at_ninety_per_cent_and_opens_below_eighty_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched, seen = Room(tmp_path), []
    for permille in (790, 800, 890, 900, 880, 850, 849, 950):
        disk(monkeypatch, permille)
        watched.look()
        seen.append((permille, watched.is_closed))
    assert [permille for permille, is_closed in seen if is_closed] == [900, 880, 850, 950]
    assert [(entry.levelname, entry.message.partition(": ")[0]) for entry in caplog.records] == [
        ("ERROR", "the bus's disk is filling up"),
        ("ERROR", "admission is closed to new work"),
        ("WARNING", "admission is open to new work again"),
        ("ERROR", "admission is closed to new work"),
    ]
    assert "80 % of the bus's disk is used, 200 MiB are left" in caplog.text


def test_a_large_disk_that_is_nearly_full_has_room_for_all_that_can_still_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Room(tmp_path)
    for size_mib, is_closed in ((PLENTY_MIB * 20, False), (PLENTY_MIB * 20 - 40, True)):
        disk(monkeypatch, 950, size_mib)
        watched.look()
        assert watched.is_closed is is_closed, size_mib


def test_a_bus_elsewhere_has_no_disk_to_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 999)
    (tmp_path / "jetstream").mkdir()
    (tmp_path / BUS_FILE).write_text(json.dumps({"url": "nats://127.0.0.1:1"}))
    for url, is_closed in (("nats://127.0.0.1:1", True), ("nats://127.0.0.1:2", False)):
        found = room_of(Settings(state_dir=tmp_path, url=url))
        found.look()
        assert found.is_closed is is_closed


def test_a_disk_that_is_gone_is_told_once_until_it_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is looked at twice a second, and a line for each would fill the disk that is left."""
    watched = Room(tmp_path / "store")
    for _ in range(3):
        watched.look()
    (tmp_path / "store").mkdir()
    watched.look()
    (tmp_path / "store").rmdir()
    watched.look()
    assert [line.message.partition(": ")[0] for line in caplog.records] == ["the bus's disk cannot be looked at"] * 2


def test_a_disk_that_cannot_be_looked_at_closes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Room(tmp_path / "gone")
    watched.look()
    assert not watched.is_closed
    assert "cannot be looked at" in caplog.text


def test_a_bus_is_started_while_it_can_write_a_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, seen = Room(tmp_path), []
    for free_mib in (5, 4, 3):
        disk(monkeypatch, 1_000 - free_mib)
        watched.look()
        seen.append((watched.free_mib, watched.can_start_bus()))
    assert seen == [(5, True), (4, True), (3, False)]
    assert Room(None).can_start_bus(), "whose disk is nobody's to look at"


async def test_it_looks_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlease.runtime.room.LOOK_S", 0.005)
    disk(monkeypatch, 100)
    watched = Room(tmp_path)
    watching = asyncio.create_task(watched.watch())
    await eventually(lambda: watched.used_permille == 100)
    disk(monkeypatch, 950)
    await eventually(lambda: watched.is_closed)
    watching.cancel()


SPEC = {"budget": "a", "min_runtime": "30m", "timeout": "2h", "command": ["true"]}


class Kept:
    """The store of contracts, as far as admission's edge knows it."""

    def __init__(self) -> None:
        self.digests: list[str] = []

    async def put(self, digest: str, _body: bytes) -> None:
        self.digests.append(digest)


def submission(name: str, **spec: object) -> Message:
    contract = {"apiVersion": "fairlease/v1", "kind": "Job", "spec": {**SPEC, **spec}}
    data = canonical({"request_id": name, "contract": contract})
    return Message("FL_LAB_INBOX_ann", 7, 1, "fl.lab.cmd.ann.submit-job", data)


async def test_while_it_is_closed_new_work_is_refused_and_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, watched, kept = Cell().hosts(1).budgets(a=1), Room(tmp_path), Kept()
    edge = Edge(Subjects("lab"), kept, watched, lambda job: job in cell.world.jobs)  # type: ignore[arg-type]  # all it asks of a store
    assert edge.closed() == ""
    for name, spec in (("there", {}), ("many", {"array": {"count": 2}})):
        cell.say((await edge.read(submission(name, **spec))).said)
    disk(monkeypatch, 930)
    watched.look()
    assert edge.closed() == "93 % of the bus's disk is used, 70 MiB are left"
    for name, spec in (("there", {}), ("many", {"array": {"count": 2}})):
        assert isinstance((await edge.read(submission(name, **spec))).said, Submitted), name
    stored = len(kept.digests)
    refused = (await edge.read(submission("new"))).said
    assert isinstance(refused, Misshapen)
    assert len(kept.digests) == stored
    problem = Problem(
        field="admission",
        rule="L3",
        value="93 % of the bus's disk is used, 70 MiB are left",
        limit="closed to new work from 90 % on, until it is below 85 %",
        way_out="submit the same again later; whoever keeps the cell makes room on the bus's disk",
    )
    (event,) = cell.say(refused)
    assert isinstance(event, JobRefused)
    assert (event.job, event.problems) == (job_id("ann", "a", "new"), (problem,))
    disk(monkeypatch, 500)
    watched.look()
    cell.say((await edge.read(submission("new"))).said)
    assert job_id("ann", "a", "new") in cell.world.jobs
