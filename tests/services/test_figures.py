"""The explainer's figures of a cell whose story is known: what happened is counted once, what stands is told."""

from prometheus_client.parser import text_string_to_metric_families

from fairlease.explainer.metrics import Figures
from fairlease.runtime.metrics import text_of
from fairlease_schemas.commands import CordonHost
from fairlease_schemas.envelope import Record
from fairlease_schemas.job import End
from tests.core.bench import idle
from tests.dsl.cell import MINUTE, SECOND, Cell


class Seen:
    """A cell, and the figures of a replica that is ready when a test says so."""

    def __init__(self) -> None:
        self.is_ready = True
        self.figures = Figures(lambda: self.is_ready)
        self.cell = Cell(self._count)

    def _count(self, cell: Cell, record: Record) -> None:
        self.figures.count(cell.world, len(cell.records), record)

    def told(self) -> dict[str, float]:
        """Every sample by its name, without our prefix, and its labels."""
        families = text_string_to_metric_families(text_of(self.figures.read(self.cell.world)).decode())
        return {
            " ".join((one.name.removeprefix("fairlease_"), *map("=".join, sorted(one.labels.items())))): one.value
            for family in families
            for one in family.samples
        }

    def makes_room(self) -> tuple[str, str]:
        """Idle work on all GPUs of a host leaves for a claim that waited ten seconds; the two jobs."""
        self.cell.hosts(1).budgets(a=1, b=1)
        left = idle(self.cell, "left")
        self.cell.start(left).at(MINUTE)
        came = self.cell.submit("came", "b", gpus_per_host=8)
        self.cell.at(MINUTE + 10 * SECOND).gone(left, End.CANCELLED, 143)
        return left, came


def test_who_had_to_leave_is_counted_with_what_was_lost_and_for_what() -> None:
    seen = Seen()
    seen.makes_room()
    told = seen.told()
    assert {name: value for name, value in told.items() if name.startswith(("preempt", "attempts_ended"))} == {
        "preemptions_total cause=under-share": 1,
        "preempted_gpu_seconds_lost_total": 8 * 60,
        "attempts_ended_total end=preempted": 1,
    }
    assert told["events_total kind=eviction-ordered"] == 1


def test_a_wait_is_until_the_first_grant_and_no_later_one_counts() -> None:
    seen = Seen()
    left, came = seen.makes_room()
    waits = {"count class=idle": 1, "sum class=idle": 0, "count class=budgeted": 1, "sum class=budgeted": 10}
    waits = {f"queue_wait_seconds_{name}": value for name, value in waits.items()}
    told = seen.told()
    assert {name: told[name] for name in waits} == waits
    seen.cell.start(came).gone(came)
    assert seen.cell.world.jobs[left].attempts[-1].number == 2, "who had to leave is back"
    told = seen.told()
    assert told["events_total kind=gang-granted"] == 3
    assert {name: told[name] for name in waits} == waits


def test_before_a_replica_is_ready_it_counts_nothing_and_tells_what_stands_all_the_same() -> None:
    seen = Seen()
    before, seen.is_ready = seen.told(), False
    seen.makes_room()
    told = seen.told()
    counts = ("events", "preempt", "attempts", "queue_wait")
    assert {name: value for name, value in told.items() if name.startswith(counts) and before.get(name) != value} == {}
    assert told["jobs class=budgeted state=granted"] == told["jobs class=idle state=waiting"] == 1


def test_gpus_are_allocated_idle_or_held_and_budgets_have_what_they_hold() -> None:
    seen = Seen()
    seen.cell.hosts(3).budgets(a=1)
    seen.cell.submit("some", "a", gpus_per_host=3)
    idle(seen.cell, "idle", gpus=2)
    seen.cell.submit("large", "a", hosts=9)
    seen.cell.say(CordonHost(host="host-003", reason="fan"), "lead")
    told = seen.told()
    gpus = {state: told[f"gpus pool=h100 state={state}"] for state in ("allocated", "idle", "held")}
    assert gpus == {"allocated": 5, "idle": 11, "held": 8}
    assert (told["hosts"], told["host_holds kind=cordon"]) == (3, 1)
    assert told["budget_held_gpus budget=a pool=h100"] == 3
    assert told["jobs class=idle state=granted"] == 1
