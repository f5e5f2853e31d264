"""The bundle of a cell that answers oddly, and one that is interrupted."""

import json
import tarfile
from pathlib import Path

import pytest

from fairlease.cli.exits import INTERRUPTED, OK
from fairlease.cli.link import Link
from fairlease_schemas.explain import HostsView
from tests.cli.cell import AS_OF, Cell
from tests.cli.test_debug import unpacked, watched

__all__ = ["watched"]


@pytest.mark.parametrize("said", [b"no JSON", b"\xff", b"[" * 100_000])
def test_an_answer_that_nobody_understands_is_said_to_be_one_and_the_rest_is_there(
    watched: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    asked = Link.request

    async def odd(link: Link, service: str, question: str, body: dict[str, object]) -> bytes:
        return said if service == "ranker" else await asked(link, service, question, body)

    monkeypatch.setattr(Link, "request", odd)
    watched.plan.replies["queue"] = HostsView(rows=(), as_of=AS_OF)
    assert watched.run("debug", "bundle", str(tmp_path / "cell.tar.gz")).code == OK
    files = unpacked(tmp_path / "cell.tar.gz")
    told = json.loads(files["health.json"])
    assert (told["ranker"].keys(), told["ledger"]["position"]) == ({"trouble"}, 42)
    assert json.loads(files["queue.json"]) == {"trouble": "asked about the queue, was told of a HostsView"}


def test_an_interrupted_bundle_leaves_no_half_file(
    watched: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "addfile", interrupted)
    assert watched.run("debug", "bundle", str(tmp_path / "cell.tar.gz")).code == INTERRUPTED
    assert not list(tmp_path.iterdir())
