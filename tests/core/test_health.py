"""Which hosts there are, and what keeps them from new work."""

import msgspec
import pytest

from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.envelope import LeasesRead
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered, Inventory
from fairlease_schemas.job import CommandRefused, Problem
from fairlease_schemas.reports import HostUp
from tests.dsl.cell import MINUTE, Cell, granted, inventory, on

A_NAME, A_SIZE = "1-63 of a-z 0-9 -", "0-1000000000000"
SMALLER = inventory(1, gpus=7)


def up(boot: str = "boot-1", of: Inventory | None = None) -> HostUp:
    return HostUp(incarnation=boot, inventory=of or inventory(1))


def registered(boot: str = "boot-1", of: Inventory | None = None) -> HostRegistered:
    return HostRegistered(host="host-001", incarnation=boot, inventory=of or inventory(1))


def held(owner: str = "ann", kind: str = "cordon", reason: str = "") -> HostHeld:
    return HostHeld(host="host-001", owner=owner, kind=kind, reason=reason)


def cleared(owner: str = "ann", kind: str = "cordon") -> HostHoldCleared:
    return HostHoldCleared(host="host-001", owner=owner, kind=kind)


def changed(of: Inventory = SMALLER, boot: str = "boot-1") -> HostHeld:
    """The hold of a host whose agent said that under running work."""
    reason = "devices changed under running work"
    return msgspec.structs.replace(held("health", "changed-devices", reason), inventory=of, incarnation=boot)


SAME_AGAIN = cleared("health", "changed-devices")


# registration ---------------------------------------------------------------------------------------


def test_a_host_registers_and_says_so_only_once() -> None:
    cell = Cell()
    cell.when(up(), who="host-001").then(registered())
    cell.when(up(), who="host-001").then().follows()


def test_a_host_registers_anew_after_a_boot_or_with_other_devices() -> None:
    cell = Cell().hosts(1)
    cell.when(up("boot-2"), who="host-001").then(registered("boot-2"))
    cell.when(up("boot-2", SMALLER), who="host-001").then(registered("boot-2", SMALLER))
    assert cell.world.fleet.schedulable["h100"].value == 7


def test_a_host_may_move_to_another_pool() -> None:
    cell = Cell().hosts(1)
    cell.when(up(of=inventory(1, pool="l40s")), who="host-001").then(registered(of=inventory(1, pool="l40s")))
    assert {pool: meter.value for pool, meter in cell.world.fleet.schedulable.items()} == {"h100": 0, "l40s": 8}


@pytest.mark.parametrize(
    ("who", "what", "field", "value", "limit"),
    [
        pytest.param("host-001", inventory(1, gpus=0), "inventory.gpus", "0 GPUs", "1-16 GPUs", id="no GPU"),
        pytest.param(
            "host-001", inventory(1, gpus=17), "inventory.gpus", "17 GPUs", "1-16 GPUs", id="more GPUs than a host has"
        ),
        pytest.param(
            "host-001", inventory(1, pool="H 100"), "inventory.pool", "H 100", A_NAME, id="a pool that is no name"
        ),
        pytest.param("Host.1", inventory(1), "host", "Host.1", A_NAME, id="a host that is no name"),
        pytest.param(
            "host-001",
            msgspec.structs.replace(inventory(1), memory_mib=10**30),
            "inventory.memory_mib",
            "1" + 29 * "0",
            A_SIZE,
            id="memory no snapshot could hold",
        ),
        pytest.param(
            "host-001",
            msgspec.structs.replace(inventory(1), disk_mib=10**12 + 1),
            "inventory.disk_mib",
            "1000000000001",
            A_SIZE,
            id="a disk of more than an exabyte",
        ),
        pytest.param(
            "host-001",
            msgspec.structs.replace(inventory(1), cpu_cores=-1),
            "inventory.cpu_cores",
            "-1",
            A_SIZE,
            id="fewer than no cores",
        ),
        pytest.param(
            "host-001",
            msgspec.structs.replace(inventory(1), gpus=("GPU-x", "GPU-x")),
            "inventory.gpus",
            "GPU-x",
            "each GPU once",
            id="the same GPU twice",
        ),
    ],
)
def test_an_inventory_out_of_bounds_is_refused(who: str, what: Inventory, field: str, value: str, limit: str) -> None:
    cell = Cell()
    (event,) = cell.when(up(of=what), who=who).events()
    assert isinstance(event, CommandRefused)
    (problem,) = event.problems
    assert (event.verb, problem.field, problem.rule, problem.value, problem.limit) == (
        "host-up",
        field,
        "1.3",
        value,
        limit,
    )
    assert problem.way_out
    assert cell.world.digest()
    assert cell.world.fleet.hosts == {}


def test_everything_that_is_wrong_with_a_host_is_told_at_once() -> None:
    wrong = msgspec.structs.replace(inventory(1, gpus=0), pool="H 100", host_memory_mib=-1)
    (event,) = Cell().when(up(of=wrong), who="Host.1").events()
    assert isinstance(event, CommandRefused)
    fields = ["host", "inventory.pool", "inventory.gpus", "inventory.host_memory_mib"]
    assert [problem.field for problem in event.problems] == fields


def test_a_cell_has_sixteen_pools_with_a_host_at_a_time() -> None:
    cell = Cell()
    for number in range(1, 17):
        cell.hosts(1, pool=f"pool-{number}", first=number)
    cell.hosts(1, pool="pool-1", first=17)
    one_more = Problem(
        field="inventory.pool",
        rule="1.3",
        value="pool-17",
        limit="16 pools in a cell",
        way_out="join a pool that is there, and tell its hosts apart by model or labels",
    )
    said = up(of=inventory(18, pool="pool-17"))
    cell.when(said, who="host-018").then(
        CommandRefused(account="host-018", verb="host-up", seq=18, problems=(one_more,))
    )
    cell.say(up(of=inventory(2, pool="pool-1")), "host-002")
    cell.when(said, who="host-018").then(
        HostRegistered(host="host-018", incarnation="boot-1", inventory=said.inventory)
    )


def test_the_pools_of_one_record_are_counted_too() -> None:
    cell = Cell()
    answers = [cell.answer(up(of=inventory(n, pool=f"pool-{n}")), f"host-{n:03d}") for n in range(1, 18)]
    events = cell.step("health", tuple(answers))
    assert [type(event) for event in events] == [*16 * [HostRegistered], CommandRefused]


# devices that change under running work -------------------------------------------------------------


def test_devices_that_change_under_running_work_hold_the_host() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    cell.submit("r1")
    cell.when(up(of=SMALLER), who="host-001").then(changed())
    cell.when(up(of=SMALLER), who="host-001").then()
    assert cell.world.fleet.hosts["host-001"].inventory == inventory(1)


def test_the_changed_host_registers_and_is_free_again_once_the_work_is_gone() -> None:
    # rule: 7.1
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1")
    cell.say(up(of=SMALLER), "host-001")
    assert cell.events(HostRegistered, HostHoldCleared) == [registered()]
    cell.gone(job)
    assert cell.events(HostRegistered, HostHoldCleared) == [registered(), registered(of=SMALLER), SAME_AGAIN]
    assert cell.world.fleet.hosts["host-001"].holds == ()
    cell.when(up(of=SMALLER), who="host-001").then()
    assert cell.phase(cell.submit("r2", gpus_per_host=7)) == "granted"


def test_a_changed_host_becomes_what_it_said_last() -> None:
    # rule: 7.1
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1")
    smallest = inventory(1, gpus=6)
    cell.say(up(of=SMALLER), "host-001")
    cell.when(up("boot-2", smallest), who="host-001").then(SAME_AGAIN, changed(smallest, "boot-2"))
    cell.gone(job)
    assert cell.events(HostRegistered) == [registered(), registered("boot-2", smallest)]


def test_a_changed_host_waits_for_all_of_its_work() -> None:
    # rule: 7.1
    cell = Cell().hosts(1).budgets(a=1)
    first, second = cell.submit("r1"), cell.submit("r2")
    cell.say(up(of=SMALLER), "host-001")
    cell.gone(first)
    assert cell.events(HostRegistered) == [registered()]
    cell.gone(second)
    assert cell.events(HostRegistered) == [registered(), registered(of=SMALLER)]


def test_a_changed_host_that_fell_silent_is_not_taken_for_alive() -> None:
    # rule: 7.6
    cell = Cell().hosts(1).budgets(a=1)
    cell.submit("r1")
    cell.say(up(of=SMALLER), "host-001")
    silent_ms = cell.now_ms
    cell.now_ms += 10 * MINUTE
    said = LeasesRead(due_ms=cell.now_ms, renewed={"host-001": silent_ms})
    cell.step("health", (cell.answer(said, "health", "FL_LAB_TIMERS"),))
    cell.settle()
    assert cell.world.fleet.attempts_on("host-001") == []
    assert [hold.kind for hold in cell.world.fleet.hosts["host-001"].holds] == ["changed-devices", "lease"]
    said = LeasesRead(due_ms=cell.now_ms, renewed={"host-001": cell.now_ms})
    cell.step("health", (cell.answer(said, "health", "FL_LAB_TIMERS"),))
    cell.settle()
    assert cell.events(HostRegistered) == [registered(), registered(of=SMALLER)]
    assert cell.world.fleet.hosts["host-001"].holds == ()


def test_other_labels_or_another_block_hold_nobody() -> None:
    # rule: 7.1
    cell = Cell().hosts(1).budgets(a=1)
    cell.submit("r1")
    moved = msgspec.structs.replace(inventory(1), labels={"nic": "roce"}, block="hall-9/row-1")
    cell.when(up(of=moved), who="host-001").then(registered(of=moved))
    assert cell.world.fleet.hosts["host-001"].holds == ()


def test_devices_that_come_back_as_they_were_free_the_host() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    cell.submit("r1")
    cell.say(up(of=SMALLER), "host-001")
    cell.when(up(), who="host-001").then(SAME_AGAIN)
    assert cell.world.fleet.hosts["host-001"].holds == ()


def test_devices_that_come_back_with_a_boot_free_the_host() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    cell.submit("r1")
    cell.say(up(of=SMALLER), "host-001")
    cell.when(up("boot-2"), who="host-001").then(registered("boot-2"), SAME_AGAIN)


def test_two_reports_in_one_record_see_each_other() -> None:
    cell = Cell()
    cell.when(up(), up(), up("boot-2"), who="host-001").then(registered(), registered("boot-2"))


# a boot that is refused -------------------------------------------------------------------------------

NOTHING = inventory(1, gpus=0)
REFUSED_BOOT = held("health", "refused-boot", "its host-up was refused")
TAKEN = cleared("health", "refused-boot")


def refused(cell: Cell) -> CommandRefused:
    """The refusal of the last message of a host without GPUs."""
    way_out = "let the agent offer a part of them, or find out why it sees none"
    problem = Problem(field="inventory.gpus", rule="1.3", value="0 GPUs", limit="1-16 GPUs", way_out=way_out)
    seq = cell.world.cursor("health", "FL_LAB_REPORTS")
    return CommandRefused(account="host-001", verb="host-up", seq=seq, problems=(problem,))


def test_a_host_that_is_refused_after_a_boot_is_held_until_it_is_taken() -> None:
    # rule: 7.1
    cell = Cell().hosts(1)
    told = cell.when(up("boot-2", NOTHING), who="host-001").events()
    assert told == [refused(cell), REFUSED_BOOT]
    told = cell.when(up("boot-3", NOTHING), who="host-001").events()
    assert told == [refused(cell)], "held once"
    cell.when(up("boot-3", SMALLER), who="host-001").then(registered("boot-3", SMALLER), TAKEN)
    assert cell.world.fleet.hosts["host-001"].holds == ()


def test_what_comes_back_as_it_was_registered_is_taken_again() -> None:
    # rule: 7.1
    cell = Cell().hosts(1)
    cell.say(up("boot-2", NOTHING), "host-001")
    cell.when(up(), who="host-001").then(TAKEN)


def test_a_refusal_in_the_same_boot_holds_nothing() -> None:
    # rule: 7.1
    cell = Cell().hosts(1)
    told = cell.when(up(of=NOTHING), who="host-001").events()
    assert told == [refused(cell)]


def test_other_devices_after_a_refused_boot_wait_for_the_work_that_is_there() -> None:
    # rule: 7.1
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1")
    cell.say(up("boot-2", NOTHING), "host-001")
    cell.when(up("boot-2", SMALLER), who="host-001").then(changed(boot="boot-2"))
    cell.gone(job)
    assert cell.events(HostRegistered, HostHoldCleared) == [
        registered(),
        registered("boot-2", SMALLER),
        SAME_AGAIN,
        TAKEN,
    ]


# holds ----------------------------------------------------------------------------------------------


def test_a_cordoned_host_gets_no_new_work_and_keeps_what_it_has() -> None:
    cell = Cell().hosts(2).budgets(a=1)
    job = cell.submit("r1")
    cell.when(CordonHost(host="host-001", reason="fan")).then(held(reason="fan"))
    second = cell.submit("r2")
    assert cell.world.jobs[second].attempts[0].hosts == ("host-002",)
    assert cell.phase(job) == "granted"
    cell.when(ReturnHost(host="host-001")).then(cleared())


def test_a_returned_host_is_room_for_who_waits() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    cell.say(CordonHost(host="host-001"))
    job = cell.submit("r1")
    assert cell.phase(job) == "waiting"
    cell.say(ReturnHost(host="host-001"))
    assert cell.phase(job) == "granted"


def test_what_is_already_so_is_no_error() -> None:
    cell = Cell().hosts(1)
    cell.when(ReturnHost(host="host-001")).then()
    cell.when(CordonHost(host="host-001")).then(held())
    cell.when(CordonHost(host="host-001", reason="again")).then().follows()


def test_holds_of_two_owners_stand_side_by_side() -> None:
    cell = Cell().hosts(1)
    cell.when(CordonHost(host="host-001")).then(held())
    cell.when(CordonHost(host="host-001"), who="bob").then(held("bob"))
    cell.when(ReturnHost(host="host-001")).then(cleared())
    assert [hold.owner for hold in cell.world.fleet.hosts["host-001"].holds] == ["bob"]


def test_only_its_owner_clears_a_hold() -> None:
    cell = Cell().hosts(1)
    cell.say(CordonHost(host="host-001"))
    limit = "only the owner clears a hold"
    problem = Problem(field="host", rule="7.1", value="host-001", limit=limit, way_out="ask ann")
    cell.when(ReturnHost(host="host-001"), who="eve").then(
        CommandRefused(account="eve", verb="return-host", seq=1, problems=(problem,))
    )


@pytest.mark.parametrize("said", [CordonHost(host="host-009"), ReturnHost(host="host-009")])
def test_a_host_that_is_not_registered_is_refused(said: CordonHost | ReturnHost) -> None:
    verb = str(type(said).__struct_config__.tag)
    limit, way_out = "a registered host", "see `fairlease hosts`"
    problem = Problem(field="host", rule="7.1", value="host-009", limit=limit, way_out=way_out)
    Cell().when(said).then(CommandRefused(account="ann", verb=verb, seq=1, problems=(problem,)))


def test_a_hold_outlives_a_boot() -> None:
    cell = Cell().hosts(1)
    cell.say(CordonHost(host="host-001"))
    cell.say(up("boot-2"), "host-001")
    assert [hold.owner for hold in cell.world.fleet.hosts["host-001"].holds] == ["ann"]


def test_cordon_and_return_in_one_record_see_each_other() -> None:
    cell = Cell().hosts(1)
    cell.when(CordonHost(host="host-001"), ReturnHost(host="host-001")).then(held(), cleared())


# schedulable time -----------------------------------------------------------------------------------


def test_a_held_host_is_schedulable_only_while_earlier_work_has_it() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1", gpus_per_host=3)
    meter = cell.world.fleet.schedulable["h100"]
    cell.at(MINUTE).say(CordonHost(host="host-001"))
    assert meter.value == 3
    cell.at(2 * MINUTE).gone(job)
    assert meter.value == 0
    cell.at(4 * MINUTE).say(ReturnHost(host="host-001"))
    assert meter.value == 8
    start_ms = meter.times_ms[0]
    assert meter.integral(start_ms, start_ms + 5 * MINUTE) == (8 + 3 + 0 + 0 + 8) * MINUTE


def test_a_new_host_is_room_for_a_gang_that_waits() -> None:
    cell = Cell().hosts(2).budgets(a=1)
    cell.say(CordonHost(host="host-001"))
    job = cell.submit("r1", hosts=2, gpus_per_host=8)
    whole = tuple(range(8))
    cell.when(up(of=inventory(3)), who="host-003").then(
        HostRegistered(host="host-003", incarnation="boot-1", inventory=inventory(3))
    )
    cell.settle()
    assert granted(job, on(2, *whole), on(3, *whole)) in cell.events()
