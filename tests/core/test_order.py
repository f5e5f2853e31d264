"""What a host shall run, as a projection of the log."""

from fairlease.core.order import host_order
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import End
from fairlease_schemas.orders import HostOrder, RunOrder
from fairlease_schemas.reports import HostUp
from tests.dsl.cell import HOUR, SECOND, Cell


def cell(hosts: int = 1) -> Cell:
    return Cell().hosts(hosts).budgets(a=1)


def uuids(host: int, *gpus: int) -> tuple[str, ...]:
    return tuple(f"GPU-host-{host:03d}-{k}" for k in gpus)


def runs(here: Cell, host: int) -> list[tuple[str, str, int]]:
    """(attempt, why it shall stop, rank) of what the host is ordered to run."""
    order = host_order(here.world, f"host-{host:03d}")
    return [(run.attempt, run.stop, run.rank) for run in order.runs]


def grant_position(here: Cell, job: str) -> int:
    return here.world.jobs[job].attempts[-1].token.position


def test_a_host_without_work_is_ordered_to_run_nothing_and_told_its_lease() -> None:
    assert host_order(cell().world, "host-001") == HostOrder(epoch=1, position=2, host="host-001", incarnation="boot-1")


def test_a_grant_is_an_order_to_run() -> None:
    here = cell()
    here.submit("r0", gpus_per_host=2)
    job = here.submit("r1", gpus_per_host=3)
    attempt = here.world.jobs[job].attempts[0]
    order = host_order(here.world, "host-001")
    assert [run for run in order.runs if run.job == job] == [
        RunOrder(
            attempt=attempt_id(job, 1),
            job=job,
            token=str(attempt.token),
            digest=f"{'r1':0>64}",
            gpus=uuids(1, 2, 3, 4),
            hosts=("host-001",),
            rank=0,
            run_grace_ms=30_000,
            account="ann",
        )
    ]
    assert order.position == grant_position(here, job)


def test_attempts_stand_by_id() -> None:
    here = cell()
    jobs = [here.submit(f"r{n}") for n in range(5)]
    assert [attempt for attempt, _, _ in runs(here, 1)] == sorted(attempt_id(job, 1) for job in jobs)


def test_each_host_of_a_gang_has_its_rank_and_knows_all_the_others() -> None:
    here = Cell().hosts(1, block=1).hosts(2, first=5).budgets(a=1)
    job = here.submit("r1", hosts=3, gpus_per_host=8)
    hosts = here.world.jobs[job].attempts[0].hosts
    assert set(hosts) == {"host-001", "host-005", "host-006"}
    for rank, host in enumerate(hosts):
        (run,) = host_order(here.world, host).runs
        assert (run.rank, run.hosts, run.gpus) == (rank, hosts, uuids(int(host[-3:]), *range(8)))


def test_what_shall_stop_says_why_and_with_what_grace() -> None:
    here = cell()
    job = here.submit("r1", grace_ms=7 * SECOND)
    here.say(CancelJob(job=job))
    (run,) = host_order(here.world, "host-001").runs
    assert (run.stop, run.grace_ms) == ("cancelled", 7 * SECOND)
    assert host_order(here.world, "host-001").position == len(here.records)


def test_a_time_limit_and_an_eviction_are_orders_to_stop() -> None:
    here = cell()
    here.submit("r1", gpus_per_host=4)
    victim = here.submit("idle", gpus_per_host=4, min_runtime_ms=0)
    here.submit("claim", gpus_per_host=4)
    here.at(2 * HOUR)
    stops = {attempt: stop for attempt, stop, _ in runs(here, 1)}
    assert stops[attempt_id(victim, 1)] == "preempted"
    assert sorted(stops.values()) == ["preempted", "timed-out"]


def test_a_part_that_is_gone_is_no_longer_ordered_while_others_run() -> None:
    here = cell(2)
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    here.gone(job, hosts=("host-001",))
    assert runs(here, 1) == []
    assert runs(here, 2) == [(attempt_id(job, 1), "", 1)]


def test_the_position_moves_whenever_the_order_changes() -> None:
    here = cell(2)
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    before = host_order(here.world, "host-001")
    here.gone(job, hosts=("host-001",))
    after = host_order(here.world, "host-001")
    assert (before.runs, after.runs) != (after.runs, before.runs)
    assert after.position > before.position


def test_a_start_changes_no_order() -> None:
    here = cell(2)
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    before = host_order(here.world, "host-001")
    here.say(here.run_started(job), "host-001")
    assert host_order(here.world, "host-001") == before


def test_what_ended_is_forgotten() -> None:
    here = cell()
    job = here.submit("r1")
    here.gone(job, End.FAILED, 1)
    order = host_order(here.world, "host-001")
    assert order.runs == ()
    assert order.position > grant_position(here, job)


def test_a_stillborn_attempt_is_never_ordered() -> None:
    here = cell()
    job = here.submit("r1", settle=False)
    here.step("ranker")
    placed = here.draft("placement")
    here.say(CancelJob(job=job), settle=False)
    here.append(placed)
    assert here.world.live
    assert runs(here, 1) == []


def test_a_job_that_is_granted_again_has_a_new_token() -> None:
    here = cell()
    job = here.submit("r1", on_timeout="requeue")
    first = host_order(here.world, "host-001").runs[0]
    here.at(2 * HOUR).gone(job, End.CANCELLED, 143)
    second = host_order(here.world, "host-001").runs[0]
    assert (first.attempt, second.attempt) == (attempt_id(job, 1), attempt_id(job, 2))
    assert first.token != second.token


def test_a_machine_that_was_started_anew_is_told_what_is_of_before_and_what_is_not() -> None:
    # rule: 7.6 7.7
    here = cell()
    old = here.submit("r1", gpus_per_host=2)
    here.now_ms += SECOND
    anew = HostUp(incarnation="boot-2", inventory=here.world.fleet.hosts["host-001"].inventory)
    here.say(anew, "host-001")
    position = len(here.records)
    new = here.submit("r2", gpus_per_host=2)
    order = host_order(here.world, "host-001")
    assert order.incarnation == "boot-2"
    assert {run.job: run.is_of_before for run in order.runs} == {old: True, new: False}
    assert here.world.ordered["host-001"] > position
    here.say(anew, "host-001")
    assert host_order(here.world, "host-001") == order
