"""A part of a gang at its barrier (1.15): prepared, said, kept over restarts, and begun when the order says go."""

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlease.agent import rendezvous, stores
from fairlease.agent.rendezvous import Ports, own_address
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import read_settings
from fairlease_schemas.job import End, Rendezvous
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunGone, RunReady, RunStarted
from tests.agent.bench import Bench, python, shell, until

LISTENS = python(
    "import os, socket, time\n"
    "door = socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
    "names = ('MASTER_ADDR', 'MASTER_PORT', 'FAIRLEASE_RENDEZVOUS', 'NNODES', 'NODE_RANK')\n"
    "print(*(os.environ[name] for name in names))\n"
)


def waits(part: RunOrder, rank: int = 0) -> RunOrder:
    return replace(part, is_go=False, rank=rank, hosts=part.hosts if rank == 0 else part.hosts[::-1])


def goes(part: RunOrder, at: Rendezvous | None) -> RunOrder:
    return replace(part, is_go=True, rendezvous=at)


async def ready(bench: Bench, part: RunOrder) -> RunReady:
    found = await until(lambda: bench.of(part, RunReady), f"{part.attempt} is ready")
    assert isinstance(found[0], RunReady)
    return found[0]


def is_kept(port: int) -> bool:
    """Whether nobody but who keeps it can have the port."""
    with socket.socket() as mine:
        try:
            mine.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def notes(bench: Bench) -> list[str]:
    return sorted(path.name for path in (bench.home / "ports").iterdir())


@pytest.mark.asyncio
async def test_the_first_part_keeps_a_port_until_all_are_ready_and_then_its_command_has_it(bench: Bench) -> None:
    # rule: 1.15
    part = waits(bench.part("a", LISTENS))
    bench.order(part)
    said = await ready(bench, part)
    assert said.rendezvous is not None
    assert said == RunReady(attempt=part.attempt, token=part.token, rendezvous=said.rendezvous)
    port = said.rendezvous.port
    assert said.rendezvous.address == "127.0.0.1"
    for _ in range(3):
        bench.order(part)
    assert is_kept(port)
    assert not bench.directory(part).path.exists()
    bench.order(goes(part, said.rendezvous))
    gone = await bench.gone(part)
    assert (gone.end, bench.log(part)) == (End.SUCCEEDED, f"127.0.0.1 {port} 127.0.0.1:{port} 2 0\n")
    assert bench.of(part, RunReady) == [said]
    await until(lambda: notes(bench) == [], "the note goes with the run")


@pytest.mark.asyncio
async def test_another_part_says_that_it_is_ready_and_is_told_where_to_go(bench: Bench) -> None:
    # rule: 1.15
    part = waits(bench.part("a", shell('echo "$MASTER_ADDR $MASTER_PORT $FAIRLEASE_RENDEZVOUS $NODE_RANK"')), rank=1)
    bench.order(part)
    assert await ready(bench, part) == RunReady(attempt=part.attempt, token=part.token)
    assert notes(bench) == []
    bench.order(goes(part, Rendezvous(address="fd00::7", port=20_007)))
    await bench.gone(part)
    assert bench.log(part) == "fd00::7 20007 [fd00::7]:20007 1\n"


@pytest.mark.asyncio
async def test_on_one_host_nobody_is_waited_for_and_the_ranks_meet_there(bench: Bench) -> None:
    # rule: 1.15
    part = replace(bench.part("a", LISTENS), hosts=(bench.devices.host,))
    bench.order(part)
    gone = await bench.gone(part)
    address, port, both, hosts, rank = bench.log(part).split()
    assert (gone.end, address, both, hosts, rank) == (End.SUCCEEDED, "127.0.0.1", f"127.0.0.1:{port}", "1", "0")
    assert bench.of(part, RunReady) == []
    assert notes(bench) == []


@pytest.mark.asyncio
async def test_two_attempts_on_one_machine_never_meet_at_one_port(bench: Bench) -> None:
    # rule: 1.15
    parts = [waits(bench.part(f"j{n}", gpus=(n,))) for n in range(8)]
    bench.order(*parts)
    said = [await ready(bench, part) for part in parts]
    assert len({one.rendezvous.port for one in said if one.rendezvous is not None}) == 8


@pytest.mark.asyncio
async def test_an_agent_that_comes_back_before_the_gang_goes_keeps_the_same_port(bench: Bench) -> None:
    # rule: 1.15
    part = waits(bench.part("a", LISTENS))
    bench.order(part)
    said = await ready(bench, part)
    assert said.rendezvous is not None
    bench.restart()
    assert not is_kept(said.rendezvous.port)
    bench.order(part)
    await until(lambda: len(bench.of(part, RunReady)) == 2, "it is said again, for the first word may be lost")
    assert bench.of(part, RunReady) == [said, said]
    assert is_kept(said.rendezvous.port)
    bench.restart()
    bench.order(goes(part, said.rendezvous))
    assert (await bench.gone(part)).end is End.SUCCEEDED
    assert len(bench.of(part, RunStarted)) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("has_gone", [False, True], ids=["before the gang goes", "when it goes"])
async def test_a_gang_whose_port_somebody_took_meanwhile_begins_nowhere(bench: Bench, has_gone: bool) -> None:
    # rule: 1.8 1.15
    part = waits(bench.part("a"))
    bench.order(part)
    first = (await ready(bench, part)).rendezvous
    assert first is not None
    bench.close()
    with socket.create_server(("", first.port)):
        bench.restart()
        bench.order(goes(part, first) if has_gone else part)
        gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (
        End.FAULT,
        f"port {first.port}, where the gang was to meet, was taken while no agent kept it",
    )
    assert [len(bench.of(part, kind)) for kind in (RunReady, RunStarted)] == [1, 0]


@pytest.mark.asyncio
async def test_a_part_that_is_stopped_before_the_gang_goes_never_begins_and_lets_go_of_its_port(bench: Bench) -> None:
    # rule: 1.15
    part = waits(bench.part("a", shell("echo up >> ../starts")))
    bench.order(part)
    at = (await ready(bench, part)).rendezvous
    assert at is not None
    bench.order(bench.stop(part))
    gone = await bench.gone(part)
    assert gone == RunGone(attempt=part.attempt, token=part.token, end=End.CANCELLED, detail="never started")
    await until(lambda: not is_kept(at.port) and notes(bench) == [], "nothing is kept")
    bench.order(goes(part, at))
    bench.order(last := bench.part("b"))
    await bench.gone(last)
    assert bench.of(part, RunStarted) == []


@pytest.mark.asyncio
async def test_what_an_earlier_agent_kept_for_attempts_that_are_over_is_forgotten(bench: Bench) -> None:
    # rule: 1.15
    part = waits(bench.part("a"))
    bench.order(part)
    await ready(bench, part)
    bench.restart()
    bench.order()
    assert notes(bench) == []


@pytest.mark.asyncio
async def test_a_part_whose_contract_is_refused_is_never_ready(bench: Bench) -> None:
    # rule: 1.15
    bench.patience_s = 0
    part = waits(bench.part("a"))
    del bench.bodies[part.digest]
    bench.order(part)
    assert (await bench.gone(part)).end is End.START_FAILED
    assert bench.of(part, RunReady) == []


@pytest.mark.asyncio
async def test_a_part_is_ready_when_its_gpus_are_free_and_its_host_has_its_lease(bench: Bench) -> None:
    # rule: 1.15 7.6
    before = bench.part("a", shell("while [ ! -e ../end ]; do sleep 0.01; done"))
    part = waits(bench.part("b"))
    bench.order(before)
    await bench.started(before)
    bench.order(before, part)
    last = waits(bench.part("c", gpus=(1,)))
    bench.order(before, part, last)
    await ready(bench, last)
    assert bench.of(part, RunReady) == []
    (bench.directory(before).path / "end").touch()
    await ready(bench, part)
    bench.close()
    bench.has_lease = False
    bench.restart()
    bench.host.lease.renewed(0, 0)
    bench.order(part)
    bench.order(stopped := bench.stop(bench.part("d", gpus=(2,))))
    await bench.gone(stopped)
    assert len(bench.of(part, RunReady)) == 1


@pytest.mark.asyncio
async def test_an_order_without_a_meeting_place_names_none(bench: Bench) -> None:
    # rule: 1.15
    part = bench.part("a", ("env",))
    bench.order(part)
    await bench.gone(part)
    assert not [line for line in bench.log(part).splitlines() if line.startswith(("MASTER_", "FAIRLEASE_RENDEZVOUS"))]


@pytest.mark.asyncio
async def test_a_contract_may_say_for_itself_what_launchers_read_and_not_what_we_promise(bench: Bench) -> None:
    # rule: 1.15
    env = {"MASTER_ADDR": "elsewhere", "MASTER_PORT": "1", "NNODES": "9", "FAIRLEASE_RENDEZVOUS": "x:1"}
    script = 'echo "$MASTER_ADDR $MASTER_PORT $NNODES $NODE_RANK $FAIRLEASE_RENDEZVOUS"'
    part = goes(bench.part("a", shell(script), env=env), Rendezvous(address="gpu-7", port=20_001))
    bench.order(part)
    await bench.gone(part)
    assert bench.log(part) == "elsewhere 1 9 0 gpu-7:20001\n"


@pytest.mark.asyncio
async def test_a_disk_that_refuses_the_note_is_asked_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 1.15
    write = rendezvous.layout.write_whole
    refusals = [OSError(errno.ENOSPC, "no room")]

    def refuses_once(path: str, data: bytes, *, is_durable: bool) -> None:
        if "/ports/" in path and refusals:
            raise refusals.pop()
        write(path, data, is_durable=is_durable)

    monkeypatch.setattr(rendezvous.layout, "write_whole", refuses_once)
    monkeypatch.setattr("fairlease.agent.host._RETRY_S", 0.02)
    part = waits(bench.part("a"))
    bench.order(part)
    said = await ready(bench, part)
    assert refusals == []
    assert said.rendezvous is not None
    assert is_kept(said.rendezvous.port)


def test_a_note_that_a_power_cut_left_empty_is_no_port(tmp_path: Path) -> None:
    # rule: 1.15
    (tmp_path / "ports").mkdir()
    (tmp_path / "ports" / "job-a-a1").write_text("")
    ports = Ports(tmp_path)
    ports.open()
    port = ports.keep("job-a-a1", is_noted=True)
    assert (tmp_path / "ports" / "job-a-a1").read_text() == str(port)
    ports.close()


# where a host is ------------------------------------------------------------------------------------


def test_what_is_told_of_a_hosts_address_goes_before_what_is_found() -> None:
    # rule: 1.15
    assert own_address("gpu-7.lab", "nats://127.0.0.1:4222") == "gpu-7.lab"
    assert own_address("", "nats://127.0.0.1:4222,nats://10.9.9.9:4222") == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "address"),
    [pytest.param("gpu-7", "gpu-7", id="its name"), pytest.param("no name", "127.0.0.1", id="what always is")],
)
def test_a_host_without_a_way_to_the_bus_is_known_by(name: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 1.15
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert own_address("", "nats://bus.nowhere.invalid:4222") == address
    assert own_address("", "nats://bus:none") == address


def test_an_address_in_the_settings_that_is_none_is_refused(tmp_path: Path) -> None:
    # rule: 1.15
    env = {"FAIRLEASE_HOME": str(tmp_path), "FAIRLEASE_HOST_ADDRESS": "10.0.0.7:4222"}
    with pytest.raises(ConfigWrong, match=r"FAIRLEASE_HOST_ADDRESS='10\.0\.0\.7:4222' is not an address"):
        read_settings("agent", env)
    assert read_settings("agent", {**env, "FAIRLEASE_HOST_ADDRESS": " fd00::7 "}).host_address == "fd00::7"


@pytest.mark.asyncio
async def test_a_lookup_that_hangs_holds_up_no_other_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 1.15
    aside: Callable[..., Any] = stores.aside
    waiting: list[object] = []

    async def hangs(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the call gives
        if call is bench.host._ask_address:
            waiting.append(call)
            await asyncio.Event().wait()
        return await aside(call)

    monkeypatch.setattr(stores, "aside", hangs)
    part, other = waits(bench.part("a")), bench.part("b", gpus=(1,))
    bench.order(part)
    await until(lambda: waiting, "the address is asked for")
    bench.order(part, other)
    await bench.gone(other)
    assert bench.of(part, RunReady) == []
