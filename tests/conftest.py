"""The bus for tests: a real server per module, and a cell of its own per test."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlease.runtime import bus_server, streams
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.settings import Settings
from fairlease_schemas.subjects import Subjects
from tests.hostile import counted

_NUMBERS = itertools.count(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what the hostile corpora and the fuzzing fed to whom, and the dearest of it."""
    reports = [one for outcome in ("passed", "failed") for one in terminalreporter.stats.get(outcome, ())]
    lines = sorted(counted.summary(found for one in reports for found in getattr(one, "user_properties", ())))
    if lines:
        terminalreporter.section("hostile input")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bus_server.BusServer]:
    """A server for the module; it starts in 30 ms. Tests that stop or kill one use `own_bus`."""
    server = bus_server.start(tmp_path_factory.mktemp("bus"), dies_with_parent=True)
    yield server
    server.stop()


@pytest.fixture
def own_bus(tmp_path: Path) -> Iterator[list[bus_server.BusServer]]:
    """A server for one test, in a list so that the test can put a restarted one in its place."""
    holder = [bus_server.start(tmp_path / "bus", dies_with_parent=True)]
    yield holder
    holder[0].stop()


@pytest.fixture
def subjects() -> Subjects:
    """A cell nobody else uses, so that tests of a module share a server and nothing else."""
    return Subjects(f"cell-{next(_NUMBERS)}")


@pytest.fixture
async def client(bus: bus_server.BusServer, subjects: Subjects) -> AsyncIterator[Connection]:
    """A connection to the module's server, on which the test's cell is declared with account `local`."""
    connection = await connect(bus.url, "test", exit_on_close=False)
    await streams.declare(connection, subjects, ("local",))
    yield connection
    await connection.close()


@pytest.fixture
def settings(bus: bus_server.BusServer, subjects: Subjects, tmp_path: Path) -> Settings:
    """Those of one service in the test's cell."""
    return Settings(state_dir=tmp_path / "state", url=bus.url, cell=subjects.cell, service="admission")
