"""Whatever a job of the agent's own user puts in the place of a file of its run: agent and keeper neither wait nor end.

And the run ends all the same. Where runs are users' of their own (1.16) they cannot write there at all.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlease.agent import layout
from fairlease.agent.layout import Spoiled, content
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from tests.agent.bench import Bench, keeper_of, shell

UNTIL_TOLD = "echo ready; while [ ! -e ../end ]; do sleep 0.05; done; exit 3"
NAMES = (
    *(layout.RUN, layout.CLAIM, layout.LEADER, layout.STARTED, layout.EXIT, layout.GONE, layout.EVIDENCE, layout.LOG),
    *(
        layout.PREEMPT,
        layout.RESERVED,
        "preempt.reserved",
        layout.STARTED_RESERVED,
        "shim.err",
        "log.00000000000000000006",
    ),
    *("acked-run-started", "acked-run-gone", "acked-checkpoint-done", "gone.json.new", "exit.json.new", "preempt.new"),
)
HOST_FILES = (layout.LEASE, "order.json", "wake", "lease.new", "order.json.new")


def directory(path: Path) -> None:
    path.mkdir()
    (path / "full").touch()


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loose_link(path: Path) -> None:
    path.symlink_to("nothing")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


KINDS = (os.mkfifo, directory, link, loose_link, huge)
as_each = pytest.mark.parametrize("put", KINDS, ids=lambda put: put.__name__)


def spoil(path: Path, put: Callable[[Path], None]) -> None:
    path.unlink(missing_ok=True)
    put(path)


class Runs:
    """A run for each name, whose file of that name is spoiled once it is up."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        parts = [bench.part(f"n{number}", shell(UNTIL_TOLD), gpus=()) for number in range(len(NAMES))]
        self.parts: dict[str, RunOrder] = dict(zip(NAMES, parts, strict=True))
        self._claims: dict[Path, bytes] = {}

    async def spoiled(self, put: Callable[[Path], None]) -> None:
        self._bench.order(*self.parts.values())
        for part in self.parts.values():
            await self._bench.printed(part, "ready")
            await self._bench.started(part)
        claim = self._bench.directory(self.parts[layout.CLAIM]).path / layout.CLAIM
        self._claims[claim] = claim.read_bytes()
        for name, part in self.parts.items():
            spoil(self._bench.directory(part).path / name, put)

    def put_back(self) -> None:
        """The bench looks there for what to clear away."""
        for claim, data in self._claims.items():
            layout.write_whole(str(claim), data, is_durable=False)


@pytest.fixture
def runs(bench: Bench) -> Iterator[Runs]:
    runs = Runs(bench)
    yield runs
    runs.put_back()


@as_each
@pytest.mark.asyncio
async def test_a_run_with_a_spoiled_file_ends_with_its_own_exit_code(
    bench: Bench, runs: Runs, put: Callable[[Path], None]
) -> None:
    await runs.spoiled(put)
    for part in runs.parts.values():
        (bench.directory(part).path / "end").touch()
    ends = {name: await bench.gone(part) for name, part in runs.parts.items()}
    assert {name: (gone.end, gone.exit_code) for name, gone in ends.items()} == dict.fromkeys(NAMES, (End.FAILED, 3))
    other = bench.part("other", ("echo", "here"))
    bench.order(other)
    assert (await bench.gone(other)).end is End.SUCCEEDED


@as_each
@pytest.mark.asyncio
async def test_a_run_with_a_spoiled_file_is_stopped_also_by_the_next_agent(
    bench: Bench, runs: Runs, put: Callable[[Path], None]
) -> None:
    # rule: 8.1
    await runs.spoiled(put)
    bench.restart()
    bench.order(*(bench.stop(part) for part in runs.parts.values()))
    told = {name: part for name, part in runs.parts.items() if name != "acked-run-gone"}
    ends = {name: (await bench.gone(part)).end for name, part in told.items()}
    assert ends == dict.fromkeys(told, End.CANCELLED)


@as_each
@pytest.mark.asyncio
async def test_a_spoiled_order_to_stop_is_one(bench: Bench, put: Callable[[Path], None]) -> None:
    # rule: 8.1
    part = bench.part("a", shell(UNTIL_TOLD))
    bench.order(part)
    await bench.printed(part, "ready")
    spoil(bench.directory(part).path / layout.STOP, put)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.CANCELLED, layout.UNREADABLE)


@as_each
@pytest.mark.asyncio
async def test_the_files_of_a_host_are_made_anew_where_they_were_spoiled(
    bench: Bench, put: Callable[[Path], None]
) -> None:
    part = bench.part("a", shell(UNTIL_TOLD))
    bench.order(part)
    await bench.started(part)
    keeper = keeper_of(bench.directory(part))
    for name in HOST_FILES:
        spoil(bench.home / name, put)
    bench.renew()
    assert layout.read_lease(str(bench.home / layout.LEASE), bench.host.incarnation) != (0, 0)
    bench.restart()
    other = bench.part("b", ("echo", "here"), gpus=(1,))
    bench.order(part, other)
    assert (await bench.gone(other)).end is End.SUCCEEDED
    (bench.directory(part).path / "end").touch()
    assert (await bench.gone(part)).exit_code in (3, 143)  # a keeper that looked in between found no lease
    assert keeper_of(bench.directory(part)) == keeper


@as_each
@pytest.mark.asyncio
async def test_a_keeper_whose_lease_was_spoiled_ends_its_run(bench: Bench, put: Callable[[Path], None]) -> None:
    # rule: 7.6
    part = bench.part("a", shell(UNTIL_TOLD))
    bench.order(part)
    await bench.printed(part, "ready")
    spoil(bench.home / layout.LEASE, put)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.FAULT, layout.FENCED_DETAIL)


def test_only_what_is_there_and_plain_and_bounded_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        content(str(path))
    path.write_bytes(b"12345")
    assert content(str(path), 5) == b"12345"
    with pytest.raises(Spoiled, match="above 4 bytes"):
        content(str(path), 4)
    for put in KINDS:
        spoil(path, put)
        with pytest.raises(Spoiled):
            content(str(path))
        path = path.with_name(path.name + "x")
