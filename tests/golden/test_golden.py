"""Each recorded log is decided again, record by record, to the same bytes."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from fairlease.replay.verify import verify
from fairlease_schemas import codec
from fairlease_schemas.envelope import Event
from tests.golden.record import FOLDER, LOGS

PATHS = sorted(FOLDER.glob("*.jsonl"))


def records(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recorded_log_is_decided_again_to_the_same_bytes(path: Path) -> None:
    report = verify(enumerate(records(path), 1))
    assert report.first is None, (
        f"position {report.first and report.first.position}: a behaviour changed without a name"
    )
    assert report.positions == len(records(path))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recorded_log_that_was_edited_is_found(path: Path) -> None:
    lines = records(path)
    edited = msgspec.structs.replace(codec.read_record(lines[-1]), at_ms=1)
    lines[-1] = codec.sealed(edited)[1]
    report = verify(enumerate(lines, 1))
    assert report.first is not None
    assert report.first.position == len(lines)


def test_every_recorded_log_is_there_and_has_its_story() -> None:
    assert [path.stem for path in PATHS] == sorted(LOGS)


def test_between_them_the_logs_hold_every_kind_of_event() -> None:
    found = {type(event) for path in PATHS for line in records(path) for event in codec.read_record(line).events}
    assert [kind.__name__ for kind in get_args(Event) if kind not in found] == []
