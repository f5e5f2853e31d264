"""One host and its orders: what repeats, gets lost, comes late or overlaps."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlease.agent import layout
from fairlease.agent.contracts import read
from fairlease.agent.host import OF_BEFORE, Ready
from fairlease.agent.process import boot_id
from fairlease_schemas.job import End
from fairlease_schemas.orders import HostOrder, RunOrder
from fairlease_schemas.reports import HostUp, RunGone, RunStarted
from tests.agent.bench import Bench, shell, until

pytestmark = pytest.mark.asyncio

WAITS = "echo up >> ../starts; while [ ! -e ../end ]; do sleep 0.01; done"


def let_end(bench: Bench, part: RunOrder) -> None:
    (bench.directory(part).path / "end").touch()


def starts(bench: Bench, part: RunOrder) -> int:
    path = bench.directory(part).path / "starts"
    return len(path.read_text().split()) if path.exists() else 0


async def test_a_host_says_first_that_it_is_up(bench: Bench) -> None:
    part = bench.part("a")
    bench.order(part)
    await bench.gone(part)
    up, started, gone = bench.reports
    assert up == HostUp(incarnation=boot_id(), inventory=bench.devices.inventory())
    assert started == RunStarted(attempt=part.attempt, token=part.token)
    assert gone == RunGone(attempt=part.attempt, token=part.token, end=End.SUCCEEDED, exit_code=0)


async def test_an_attempt_starts_once_whatever_repeats(bench: Bench) -> None:
    part, last = bench.part("a", shell(WAITS)), bench.part("b", gpus=(1,))
    for _ in range(5):
        bench.order(part)
        bench.order(part, position=7)
    await bench.started(part)
    bench.restart()
    bench.order(part, position=8)
    let_end(bench, part)
    await bench.gone(part)
    bench.order(part, position=9)
    bench.restart()
    bench.order(part, last, position=10)
    await bench.gone(last)
    assert starts(bench, part) == 1
    assert len(bench.of(part, RunStarted)) == len(bench.of(part, RunGone)) == 1


async def test_an_order_that_was_overtaken_is_ignored_also_after_a_restart(bench: Bench) -> None:
    old, new = bench.part("old"), bench.part("new")
    bench.order(new, position=7)
    bench.order(old, position=6)
    await bench.gone(new)
    bench.restart()
    bench.order(old, position=6)
    bench.order(new, position=7)
    bench.host.obey(HostOrder(epoch=0, position=99, host=bench.devices.host, runs=(old,)))
    bench.host.obey(HostOrder(epoch=9, position=1, host="host-002", runs=(old,)))
    last = bench.part("last")
    bench.host.obey(HostOrder(epoch=2, position=1, host=bench.devices.host, runs=(last,)))
    await bench.gone(last)
    assert not bench.directory(old).path.exists()


@pytest.mark.parametrize("incarnation", ["0" * 32, ""], ids=["an order for another boot", "a grant of before"])
async def test_what_was_granted_before_the_machine_was_started_anew_never_begins(
    bench: Bench, incarnation: str
) -> None:
    # rule: 7.6 7.7
    old, new = bench.part("old"), bench.part("new")
    wanted = replace(old, is_of_before=not incarnation)
    name = bench.devices.host
    bench.host.obey(HostOrder(epoch=1, position=1, host=name, runs=(wanted,), incarnation=incarnation))
    gone = await bench.gone(old)
    assert (gone.end, gone.detail) == (End.FAULT, "the machine was started anew since it was granted")
    assert bench.of(old, RunStarted) == []
    bench.host.obey(HostOrder(epoch=1, position=2, host=name, runs=(wanted, new), incarnation=boot_id()))
    assert (await bench.gone(new)).end is End.SUCCEEDED
    assert len(bench.of(old, RunGone)) == 1


async def test_in_a_restored_directory_an_order_of_the_life_before_begins_nothing(bench: Bench) -> None:
    """Given the streams of a backup and an agent that knows no run of them, on the same boot of the same machine."""
    # rule: 7.6 7.7
    old, new = bench.part("old"), bench.part("new")
    name, mark = bench.devices.host, "a1" * 16
    (bench.home.parent / layout.LIFE).write_text(mark)
    bench.restart()
    assert bench.host.incarnation == f"{boot_id()}-{mark}"
    bench.host.obey(HostOrder(epoch=1, position=1, host=name, runs=(old,), incarnation=boot_id()))
    gone = await bench.gone(old)
    assert (gone.end, gone.detail) == (End.FAULT, OF_BEFORE)
    bench.host.obey(HostOrder(epoch=1, position=2, host=name, runs=(new,), incarnation=bench.host.incarnation))
    assert (await bench.gone(new)).end is End.SUCCEEDED
    assert starts(bench, old) == 0


async def test_a_host_that_is_not_registered_yet_refuses_nothing_that_it_might_be_granted_again(state: Path) -> None:
    """Given a host in a new life, when orders for the one before come first, then each run of before ends once."""
    # rule: 7.6 7.7
    bench = Bench(state, registered_s=600).open()
    old, new = bench.part("old"), bench.part("new")
    name = bench.devices.host
    try:
        for position in (1, 2):
            bench.host.obey(HostOrder(epoch=1, position=position, host=name, runs=(old,), incarnation="0" * 32))
            await asyncio.sleep(0.05)  # long enough for a report, had there been one
        assert bench.of(old, RunGone) == []
        of_before = replace(old, is_of_before=True)
        bench.host.obey(HostOrder(epoch=1, position=3, host=name, runs=(of_before, new), incarnation=boot_id()))
        assert (await bench.gone(new)).end is End.SUCCEEDED
        assert [gone.detail for gone in bench.of(old, RunGone)] == [OF_BEFORE]
    finally:
        bench.close()


async def test_a_mark_of_another_life_that_cannot_be_read_is_another_life_too(bench: Bench) -> None:
    (bench.home.parent / layout.LIFE).mkdir()
    bench.restart()
    assert bench.host.incarnation == f"{boot_id()}-spoiled"


async def test_an_order_for_another_boot_makes_the_agent_say_again_which_one_this_is(bench: Bench) -> None:
    order = HostOrder(epoch=1, position=1, host=bench.devices.host, incarnation="0" * 32)
    for _ in range(2):
        bench.host.obey(order)
    bench.host.obey(HostOrder(epoch=1, position=2, host=bench.devices.host, incarnation=boot_id()))

    def told() -> list[str]:
        return [report.incarnation for report in bench.reports if isinstance(report, HostUp)]

    await until(lambda: len(told()) > 1, "it says so again")
    assert told() == [boot_id()] * 2


async def test_a_stop_that_comes_first_is_a_run_that_never_starts(bench: Bench) -> None:
    part = bench.part("a", shell(WAITS))
    bench.order(bench.stop(part))
    gone = await bench.gone(part)
    assert gone == RunGone(attempt=part.attempt, token=part.token, end=End.CANCELLED, detail="never started")
    bench.restart()
    last = bench.part("b")
    bench.order(part, last)
    await bench.gone(last)
    assert starts(bench, part) == 0
    assert bench.of(part, RunGone) == [gone]
    assert bench.of(part, RunStarted) == []


async def test_a_stop_that_overtakes_the_contract_is_a_run_that_never_starts(bench: Bench) -> None:
    part = bench.part("a", shell(WAITS))
    bench.is_bus_there = False
    bench.order(part)
    bench.order(bench.stop(part))
    bench.is_bus_there = True
    assert (await bench.gone(part)).detail == "never started"
    assert starts(bench, part) == 0


async def test_two_runs_never_hold_one_gpu(bench: Bench) -> None:
    first, waiting = bench.part("a", shell(WAITS), gpus=(0, 1)), bench.part("b", shell(WAITS), gpus=(1, 2))
    beside = bench.part("c", shell(WAITS), gpus=(3,))
    bench.order(first)
    await bench.started(first)
    bench.order(first, waiting, beside)
    await bench.started(beside)
    assert not bench.directory(waiting).path.exists()
    bench.restart()
    bench.order(first, waiting, beside)
    let_end(bench, first)
    await bench.started(waiting)
    ended = bench.reports.index(bench.of(first, RunGone)[0])
    assert ended < bench.reports.index(bench.of(waiting, RunStarted)[0])


async def test_a_gpu_that_is_not_here_is_a_failed_start(bench: Bench) -> None:
    part = bench.part("a")
    bench.order(replace(part, gpus=("GPU-else",)))
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.START_FAILED, "GPU GPU-else is not on this host")


async def test_an_attempt_that_is_no_file_name_touches_no_file(bench: Bench) -> None:
    part, last = bench.part("a"), bench.part("b")
    bench.order(*(replace(part, attempt=name) for name in ("../../x", "", ".a", "a/b")), last)
    await bench.gone(last)
    assert [path.name for path in (bench.home / "runs").iterdir()] == [last.attempt]


async def test_a_living_run_that_is_no_longer_named_is_stopped(bench: Bench) -> None:
    part = bench.part("a", shell(WAITS))
    bench.order(part)
    await bench.started(part)
    bench.order()
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code, gone.detail) == (End.CANCELLED, 143, "no longer ordered")


async def test_reports_wait_for_the_bus_in_order_and_survive_the_agent(bench: Bench) -> None:
    await until(lambda: bench.reports, "the host is up")
    bench.is_bus_there = False
    parts = [bench.part(name, gpus=(k,)) for k, name in enumerate("abc")]
    for k, part in enumerate(parts):
        bench.host._learned[part.attempt] = Ready(read(bench.bodies[part.digest], part.digest), {}, None, None)
        bench.order(*parts[: k + 1])
        await until(bench.directory(part).gone, "it ends, unheard")
    assert len(bench.reports) == 1
    bench.restart()
    bench.order(*parts)
    bench.is_bus_there = True
    await bench.gone(parts[2])
    said = [type(report).__name__ + getattr(report, "attempt", "")[3:6] for report in bench.reports[1:]]
    assert said == [
        *("HostUp", "RunStarted-a-", "RunGone-a-", "RunStarted-b-", "RunGone-b-", "RunStarted-c-", "RunGone-c-"),
    ]
    bench.restart()
    await until(lambda: len(bench.of(parts[0], RunGone)) == 1 and len(bench.reports) == 9, "only that it is up again")


async def test_the_oldest_ended_runs_are_removed_once_no_order_names_them(state: Path) -> None:
    bench = Bench(state, kept=2).open()
    parts = [bench.part(name) for name in "abcd"]
    for part in parts:
        bench.order(*parts)
        await bench.gone(part)
    assert left(bench, parts) == "abcd"
    bench.order(parts[0])
    await until(lambda: left(bench, parts) == "acd", "the oldest that is not named goes")
    bench.order()
    await until(lambda: left(bench, parts) == "cd", "two are kept")
    bench.restart()
    bench.order(*parts, position=1)
    last = bench.part("e")
    bench.order(last, position=100)
    await bench.gone(last)
    assert [len(bench.of(part, RunStarted)) for part in parts] == [1, 1, 1, 1]
    bench.close()


def left(bench: Bench, parts: list[RunOrder]) -> str:
    return "".join(part.job[-1] for part in parts if bench.directory(part).path.exists())


async def test_half_made_and_half_removed_directories_are_cleared(bench: Bench) -> None:
    bench.close()
    for name in (".making-job-x-a1", ".removing-job-y-a1"):
        (bench.home / "runs" / name / layout.WORK).mkdir(parents=True)
    bench.restart()
    await until(lambda: list((bench.home / "runs").iterdir()) == [], "both are cleared")
