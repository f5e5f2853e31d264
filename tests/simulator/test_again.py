import io
from functools import partial
from pathlib import Path

import msgspec
import pytest

from fairlease.core.metrics.integral import Period
from fairlease.core.world import World
from fairlease.simulator.again import Change, play_again
from fairlease.simulator.comparison import what_if
from fairlease.simulator.engine import T0
from fairlease.simulator.machines import Stopping, Work
from fairlease.simulator.past import Past, Reading
from fairlease.simulator.runs import Simulation
from fairlease_schemas.codec import read_record
from fairlease_schemas.commands import CancelJob, ChangeBudget, RequestDrain, ReturnHost
from fairlease_schemas.envelope import Said, Submitted
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Array, Request
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.units import HOUR_MS, MINUTE_MS, SECOND_MS

GOLDEN = Path(__file__).parents[1] / "golden"
LENGTH_MS = 12 * HOUR_MS


class Cell:
    """A cell of two hosts and two budgets whose log is kept."""

    def __init__(self, hosts: int = 2) -> None:
        self.log = io.BytesIO()
        stopping = Stopping(stop_ms=5 * SECOND_MS, save_ms=60 * SECOND_MS)
        self.run = Simulation("budget-window", 1, stopping, Period(T0 - 1, T0 + LENGTH_MS), self.log)
        self.run.hosts(hosts, 8, "h100", 16)
        self.run.budget("a", 1)
        self.run.budget("b", 1)

    def says(self, said: Said, who: str, at_ms: int) -> None:
        self.run.engine.at(T0 + at_ms, partial(self.run.engine.say, said, who))

    def submits(
        self,
        name: str,
        *,
        budget: str = "a",
        hours: int = 1,
        at_ms: int = 0,
        window_ms: int = 30 * MINUTE_MS,
        array: Array | None = None,
    ) -> str:
        job = job_id("ann", budget, name)
        request = Request(
            hosts=1,
            gpus_per_host=8,
            pools=("h100",),
            min_runtime_ms=window_ms,
            timeout_ms=20 * HOUR_MS,
            grace_ms=90 * SECOND_MS,
            is_resumable=True,
            checkpoint_interval_ms=15 * MINUTE_MS,
            array=array,
        )
        work = Work(
            left_ms=hours * HOUR_MS, startup_ms=2 * MINUTE_MS, checkpoint_ms=15 * MINUTE_MS, saves_permille=1000
        )
        names = [name] if array is None else [f"{name}/{index}" for index in range(array.count)]
        for one in names:
            self.run.machines.expect(job_id("ann", budget, one), msgspec.structs.replace(work))
        self.says(Submitted(budget=budget, request_id=name, digest=f"{0:064x}", request=request), "ann", at_ms)
        return job

    def past(self) -> Past:
        """The cell runs to the end of its time, and its log is read."""
        self.run.engine.run(T0 + LENGTH_MS)
        lines = self.log.getvalue().splitlines()
        reading, world = Reading(Period(T0 - 1, read_record(lines[-1]).at_ms)), World()
        for position, line in enumerate(lines, start=1):
            record = read_record(line)
            world.apply(record, position)
            reading.take(world, record, None)
        return reading.past(world)


def told(_permille: int) -> None:
    pass


def crowded() -> Cell:
    """More work than hosts, so that there is something to decide."""
    cell = Cell()
    for number in range(5):
        cell.submits(f"a-{number}", hours=2, at_ms=number * MINUTE_MS)
    for number in range(3):
        cell.submits(f"b-{number}", budget="b", at_ms=(40 + number) * MINUTE_MS)
    return cell


def test_a_past_played_again_unchanged_is_what_was() -> None:
    past = crowded().past()
    again = play_again(told, past=past, change=Change())
    assert sum(wait_ms > 0 for wait_ms in past.waits.values()) >= 3, "where nobody waits nothing is shown"
    assert again["waits"] == past.waits
    assert again["preemption"]["count"] == past.report["preemption"]["count"] > 0
    assert again["fulfilment"] == past.report["fulfilment"]


def test_other_weights_make_other_waits_and_say_whose() -> None:
    past = crowded().past()
    again = play_again(told, past=past, change=Change())
    would = play_again(told, past=past, change=Change(budgets=(ChangeBudget(budget="b", weight=100),)))
    runs = (("again", again), ("would", would))
    found = what_if(past, again, would, {"weight b": "100"})
    assert found.earlier > 0
    assert found.earlier + found.later + found.same == len(past.work) == 8
    moved = {one.job: (one.again_ms, one.would_ms) for one in found.jobs}
    assert moved == {
        job: (again["waits"][job], would["waits"][job])
        for job in past.work
        if abs(again["waits"][job] - would["waits"][job]) >= SECOND_MS
    }
    waited = {name: sum(report["waits"][job] for job in past.work if past.budgets[job] == "b") for name, report in runs}
    assert waited["would"] < waited["again"]
    assert found.figures["fulfilment.by_budget.a"].was == past.report["fulfilment"]["by_budget"]["a"]


def test_a_number_of_the_policy_rules_the_second_run_alone() -> None:
    past = crowded().past()
    wide = play_again(told, past=past, change=Change(numbers={"margin_permille": 10**6}))
    assert past.report["preemption"]["count"] > wide["preemption"]["count"] == 0


def test_what_a_changed_policy_refuses_is_counted_and_the_rest_goes_on() -> None:
    cell = Cell()
    cell.submits("short")
    cell.submits("long", window_ms=3 * HOUR_MS)
    bound = WindowBound(up_to_gpus=1 << 30, shortest_ms=15 * MINUTE_MS, longest_ms=HOUR_MS)
    would = play_again(told, past=cell.past(), change=Change(policy=Policy(window_bounds=(bound,))))
    assert would["rules"] == [{"rule": "jobs that the changed policy or tree refuses", "count": 1}]
    assert len(would["waits"]) == 1


def test_a_fault_comes_again_when_it_came() -> None:
    cell = Cell(hosts=1)
    cell.submits("one", hours=3)
    cell.run.engine.at(T0 + HOUR_MS, lambda: cell.run.machines.breaks("host-0001"))
    cell.run.engine.at(T0 + 3 * HOUR_MS, lambda: cell.run.machines.repaired("host-0001"))
    past = cell.past()
    again = play_again(told, past=past, change=Change())
    assert past.report["recovery"]["faults"]["count"] == 1
    assert again["recovery"]["faults"] == past.report["recovery"]["faults"]
    assert again["series"]["hosts"] == past.report["series"]["hosts"]


def test_a_fault_of_a_run_strikes_again_and_leaves_the_host() -> None:
    cell = Cell(hosts=1)
    cell.submits("one", hours=3)
    cell.run.engine.at(T0 + HOUR_MS, lambda: cell.run.machines.strikes("host-0001"))
    past = cell.past()
    again = play_again(told, past=past, change=Change())
    assert past.report["recovery"]["faults"]["count"] == again["recovery"]["faults"]["count"] == 1
    assert past.report["jobs"]["finished"] == again["jobs"]["finished"] == 1
    assert {rule["rule"]: rule["count"] for rule in past.rules}[
        "a fault of a run strikes what runs on that host then"
    ] == 1


def test_an_array_is_said_again_whole() -> None:
    cell = Cell()
    cell.submits("many", array=Array(count=3))
    past = cell.past()
    again = play_again(told, past=past, change=Change())
    assert (len(past.work), again["waits"]) == (3, past.waits)
    assert "submissions that were refused, or said twice, are left out" not in {rule["rule"] for rule in past.rules}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_golden_log_can_be_played_again(path: Path) -> None:
    """Logs of live cells hold what no simulation says: readiness, leases, refusals, reports of all kinds."""
    records = [read_record(line) for line in path.read_bytes().splitlines()]
    first_ms = next(record.at_ms for record in records if record.at_ms)
    reading = Reading(Period(first_ms - 1, max(record.at_ms for record in records)))
    world = World()
    for position, record in enumerate(records, start=1):
        world.apply(record, position)
        reading.take(world, record, None)
    past = reading.past(world)
    again = play_again(told, past=past, change=Change())
    assert set(again["waits"]) == set(past.waits), "every job that was admitted is admitted again"


def test_a_host_that_would_not_be_empty_yet_comes_back_when_it_did() -> None:
    cell = Cell(hosts=1)
    cell.submits("first", window_ms=2 * HOUR_MS)
    cell.submits("short", budget="b", hours=2, at_ms=5 * MINUTE_MS)
    long = cell.submits("long", hours=3, at_ms=5 * MINUTE_MS, window_ms=4 * HOUR_MS)
    cell.says(RequestDrain(host="host-0001", reason="disk"), "ops", 2 * HOUR_MS)
    cell.says(ReturnHost(host="host-0001"), "ops", 3 * HOUR_MS)
    past = cell.past()
    assert past.waits[long] > 2 * HOUR_MS, "the one with the short window was there when the host was emptied"
    would = play_again(told, past=past, change=Change(budgets=(ChangeBudget(budget="a", weight=1000),)))
    assert would["waits"][long] < 110 * MINUTE_MS, "the one with the long window is there, and may stay"
    assert would["jobs"]["finished"] == 3


def test_who_is_cancelled_works_on_until_then_and_is_told_as_assumed() -> None:
    cell = Cell(hosts=1)
    job = cell.submits("one", hours=9)
    cell.says(CancelJob(job=job), "ann", HOUR_MS)
    second = cell.submits("two", at_ms=HOUR_MS)
    past = cell.past()
    again = play_again(told, past=past, change=Change())
    rules = {rule["rule"]: rule["count"] for rule in past.rules}
    assert rules["jobs that did not end by themselves work on for as long as the log"] == 1
    assert rules["a job has as much work as it turned out to have, without what was lost"] == 1
    assert again["waits"][second] == past.waits[second] > 0


@pytest.mark.parametrize(("numbers", "expected"), [({}, Policy()), ({"lease_ms": 7}, Policy(lease_ms=7))])
def test_a_change_keeps_what_it_does_not_name(numbers: dict[str, int], expected: Policy) -> None:
    assert Change(numbers=numbers).of(Policy()) == expected
    assert Change(numbers=numbers, policy=Policy(patience_ms=1)).of(Policy(lookback_ms=5)).patience_ms == 1
