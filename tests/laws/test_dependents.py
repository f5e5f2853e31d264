"""Whatever happens to jobs that wait for jobs, the index of a fold is that of its snapshot, and no array is overrun."""

from typing import NamedTuple

from hypothesis import strategies as st

from fairlease.core.dependency import is_open, places_of
from fairlease.core.world import World
from fairlease_schemas.commands import CancelJob, HoldJob, ReleaseJob
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import After, Array, End
from tests.dsl.cell import MINUTE, Cell, submitted
from tests.laws.examine import at_length, examine


class Step(NamedTuple):
    """Something said of a job or array by number, or a new one that waits for earlier ones."""

    kind: str
    job: int
    after: tuple[tuple[int, str], ...]
    count: int
    parallel: int


_KINDS = ("submit", "submit", "array", "done", "done", "fail", "cancel", "hold", "release", "rest", "wait")
_STEPS = st.builds(
    Step,
    kind=st.sampled_from(_KINDS),
    job=st.integers(0, 9),
    after=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(("ok", "any"))), max_size=2).map(tuple),
    count=st.integers(1, 4),
    parallel=st.integers(0, 2),
)


class Life:
    """A cell of one host that is told the steps; names are what can be waited for."""

    def __init__(self) -> None:
        self.cell = Cell().hosts(1).budgets(a=1)
        self.names: list[str] = []

    def do(self, step: Step) -> None:
        cell, name = self.cell, self._name(step.job)
        live = [job for job in cell.world.jobs.values() if job.live is not None]
        match step.kind:
            case "submit" | "array":
                after = {self._name(number): when for number, when in step.after if self.names}
                array = Array(count=step.count, parallel=min(step.parallel, step.count))
                said = submitted(
                    f"r{len(self.names)}",
                    after=tuple(After(job=job, when=when) for job, when in after.items()),
                    array=array if step.kind == "array" else None,
                    gpus_per_host=4,
                    max_retries=step.parallel,
                )
                self.names.append(job_id("ann", "a", said.request_id))
                cell.say(said, settle=False)
            case "done" | "fail" if live:
                end, code = (End.SUCCEEDED, 0) if step.kind == "done" else (End.FAILED, 1)
                job = live[step.job % len(live)].id
                cell.say(cell.run_gone(job, end, code), "host-001", settle=False)
            case "cancel":
                cell.say(CancelJob(job=name), settle=False)
            case "hold":
                cell.say(HoldJob(job=name), settle=False)
            case "release":
                cell.say(ReleaseJob(job=name), settle=False)
            case "wait":
                cell.at(cell.now_ms - 1_700_000_000_000 + MINUTE)
            case _:
                cell.settle()

    def _name(self, number: int) -> str:
        return self.names[number % len(self.names)] if self.names else "job-nobody"


def hold(steps: list[Step]) -> None:
    life = Life()
    for step in steps:
        life.do(step)
        _judge(life.cell.world)
    life.cell.settle()
    _judge(life.cell.world)
    assert not life.cell.world.dependents.ready


def _judge(world: World) -> None:
    again = World.load(world.dump())
    assert again.dependents.ready == world.dependents.ready
    assert {key: of.members for key, of in again.line.classes.items()} == {
        key: of.members for key, of in world.line.classes.items()
    }
    for job in world.jobs.values():
        places = places_of(job)
        assert not places or sum(map(is_open, world.dependents.named(_array(job.id, world)))) <= places


def _array(name: str, world: World) -> str:
    job = world.jobs[name]
    return job_id(job.account, job.budget, job.request_id.rpartition("/")[0])


@at_length
def test_jobs_that_wait_for_jobs_are_let_go_once_and_in_time(examples: int) -> None:
    # rule: 1.11
    examine(hold, st.lists(_STEPS, min_size=5, max_size=25), examples)
