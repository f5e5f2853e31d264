"""Who is granted what, and where."""

import pytest

from fairlease.core.placement.fit import Room, Shape
from fairlease_schemas.commands import CancelJob, CordonHost, ReturnHost
from fairlease_schemas.cycle import Claim, CyclePlaced, GangGranted, Licence
from fairlease_schemas.job import End
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan
from tests.dsl.cell import HOUR, MINUTE, Cell, granted, on

WHOLE = tuple(range(8))
DEBUG = {"lane": "debug", "min_runtime_ms": 10 * MINUTE, "timeout_ms": HOUR}


def cell(hosts: int = 2, **sizes: int) -> Cell:
    return Cell().hosts(hosts, **sizes).budgets(a=1)


def where(here: Cell, job: str) -> list[tuple[str, int]]:
    """(host, GPUs) of the job's last attempt, in rank order."""
    return [(part.host, len(part.gpus)) for part in here.world.jobs[job].attempts[-1].parts]


def filled(here: Cell, *gpus: int) -> Cell:
    """Host 1 with that many GPUs held, then host 2, and so on; the jobs are `full-1`, `full-2` …"""
    names = sorted(here.world.fleet.hosts)
    for number, (host, count) in enumerate(zip(names, gpus, strict=False), 1):
        others = [name for name in names if name != host]
        for name in others:
            here.say(CordonHost(host=name), "lead", settle=False)
        if count:
            here.submit(f"full-{number}", gpus_per_host=count)
        for name in others:
            here.say(ReturnHost(host=name), "lead", settle=False)
    here.settle()
    return here


# below one host -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "gpus", "host"),
    [
        pytest.param((0, 0), 1, "host-001", id="empty hosts: by id"),
        pytest.param((3, 5), 2, "host-002", id="the fullest that takes it"),
        pytest.param((3, 5), 4, "host-001", id="the fullest is too full"),
        pytest.param((5, 5), 3, "host-001", id="equally full: by id"),
        pytest.param((0, 1), 8, "host-001", id="a whole host"),
        pytest.param((1, 0), 7, "host-001", id="exactly what is left"),
    ],
)
def test_a_part_of_a_host_goes_to_the_fullest_that_takes_it(held: tuple[int, ...], gpus: int, host: str) -> None:
    # rule: 4.1 4.3
    here = filled(cell(), *held)
    assert where(here, here.submit("r1", gpus_per_host=gpus)) == [(host, gpus)]


def test_the_lowest_free_gpus_are_taken() -> None:
    # rule: 4.3
    here = cell(1)
    first = here.submit("r1", gpus_per_host=2)
    second = here.submit("r2", gpus_per_host=3)
    here.gone(first)
    third = here.submit("r3", gpus_per_host=4)
    assert here.world.jobs[second].attempts[0].parts == (on(1, 2, 3, 4),)
    assert here.world.jobs[third].attempts[0].parts == (on(1, 0, 1, 5, 6),)


def test_a_held_host_has_no_room() -> None:
    # rule: 4.1
    here = cell()
    here.say(CordonHost(host="host-001"))
    assert where(here, here.submit("r1")) == [("host-002", 1)]


# gangs ----------------------------------------------------------------------------------------------


def test_a_gang_is_one_grant_of_whole_hosts() -> None:
    # rule: 4.1
    here = cell(3)
    here.submit("small")
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    assert granted(job, on(2, *WHOLE), on(3, *WHOLE)) in here.events()


def test_a_gang_stays_inside_the_smallest_block_that_takes_it() -> None:
    # rule: 4.1
    here = Cell().hosts(4, block=4).hosts(2, first=9, block=4).hosts(3, first=13, block=4).budgets(a=1)
    assert where(here, here.submit("r1", hosts=2, gpus_per_host=8)) == [("host-009", 8), ("host-010", 8)]
    assert where(here, here.submit("r2", hosts=3, gpus_per_host=8)) == [(f"host-{n:03d}", 8) for n in (13, 14, 15)]


def test_a_gang_that_no_block_takes_spreads_over_the_fullest_blocks() -> None:
    # rule: 4.1
    here = Cell().hosts(1, block=4).hosts(3, first=5, block=4).hosts(2, first=9, block=4).budgets(a=1)
    job = here.submit("r1", hosts=4, gpus_per_host=8)
    assert where(here, job) == [(f"host-{n:03d}", 8) for n in (5, 6, 7, 9)]


def test_a_gang_waits_for_whole_hosts_though_enough_gpus_are_free() -> None:
    # rule: 4.1 9.1
    here = filled(cell(3), 1, 1)
    job = here.submit("r1", hosts=2, gpus_per_host=8, settle=False)
    here.settle()
    assert here.phase(job) == "waiting"
    evidence = Evidence(
        pool="h100", needed_gpus=16, needed_hosts=2, free_gpus=22, whole_free_hosts=1, largest_hole_gpus=8
    )
    key = "a/h100/2x8/1800000ms"
    assert here.events(ReasonBegan)[-1] == ReasonBegan(subject=key, code=Reason.FRAGMENTATION, evidence=evidence)


def test_a_gang_of_eights_takes_no_half_of_a_sixteen() -> None:
    here = Cell().hosts(2, gpus=16).hosts(2, gpus=8, first=3).budgets(a=1)
    eights = here.submit("r1", hosts=2, gpus_per_host=8)
    assert where(here, eights) == [("host-003", 8), ("host-004", 8)]
    assert where(here, here.submit("r2", hosts=2, gpus_per_host=16)) == [("host-001", 16), ("host-002", 16)]
    assert here.phase(here.submit("r3", hosts=2, gpus_per_host=8)) == "waiting"


def test_hosts_of_unlike_sizes_are_filled_by_what_is_free() -> None:
    # rule: 4.1
    here = Cell().hosts(1, gpus=16).hosts(1, gpus=4, first=2).budgets(a=1)
    assert where(here, here.submit("r1", gpus_per_host=4)) == [("host-002", 4)]
    assert where(here, here.submit("r2", gpus_per_host=4)) == [("host-001", 4)]


def blocks() -> Cell:
    """A block of four hosts, and a later one of two."""
    return Cell().hosts(4, block=4).hosts(2, first=5, block=4).budgets(a=1)


def test_a_whole_host_comes_from_the_smallest_block_so_that_the_largest_gang_still_fits() -> None:
    # rule: 4.1 4.3
    here = blocks()
    assert where(here, here.submit("r1", gpus_per_host=8)) == [("host-005", 8)]
    assert where(here, here.submit("gang", hosts=4, gpus_per_host=8)) == [(f"host-{n:03d}", 8) for n in (1, 2, 3, 4)]


def test_small_work_begins_a_host_of_the_smallest_block() -> None:
    # rule: 4.1 4.3
    here = blocks()
    assert where(here, here.submit("r1", gpus_per_host=2)) == [("host-005", 2)]
    assert where(here, here.submit("r2", gpus_per_host=2)) == [("host-005", 2)]


def test_of_equally_full_hosts_one_that_is_begun_is_taken_before_an_empty_one() -> None:
    # rule: 4.1 4.3
    here = Cell().hosts(1, gpus=4).hosts(1, gpus=8, first=2).budgets(a=1)
    here.submit("half", gpus_per_host=8, settle=False)
    here.settle()
    here.gone(next(iter(here.world.jobs)))
    here.submit("r4", gpus_per_host=4)
    other = here.submit("five", gpus_per_host=4)
    assert where(here, other) == [("host-002", 4)]
    here.gone(next(job for job in here.world.jobs if here.world.jobs[job].request_id == "r4"))
    assert where(here, here.submit("r6", gpus_per_host=4)) == [("host-002", 4)]


def test_equal_blocks_and_hosts_end_in_the_id() -> None:
    # rule: 4.3
    here = Cell().hosts(2, first=7, block=4).hosts(2, block=4).budgets(a=1)
    assert where(here, here.submit("r1", gpus_per_host=8)) == [("host-001", 8)]


def test_a_class_that_does_not_fit_is_tried_once_in_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 4.4
    here = filled(cell(1), 8)
    jobs = [here.submit(f"r{n}", gpus_per_host=8, settle=False) for n in range(50)]
    tried: list[str] = []
    find = Room.find

    def noted(room: Room, shape: Shape, job: str, needs_ms: int, licence: Licence) -> object:
        tried.append(job)
        return find(room, shape, job, needs_ms, licence)

    monkeypatch.setattr(Room, "find", noted)
    here.step("ranker")
    here.step("placement")
    assert tried == jobs[:1]


# order and blocks -----------------------------------------------------------------------------------


def test_leaves_take_turns_within_one_cycle() -> None:
    # rule: 3.2
    here = Cell().hosts(1, gpus=4).budgets(a=1, b=1)
    jobs = {name: here.submit(name, name[0], settle=False) for name in ("a1", "a2", "a3", "b1", "b2", "b3")}
    here.settle()
    order = [event.job for event in here.events(GangGranted) if isinstance(event, GangGranted)]
    assert order == [jobs[name] for name in ("a1", "b1", "a2", "b2")]


def test_a_blocked_class_lets_smaller_ones_pass() -> None:
    # rule: 3.2 4.4
    here = filled(cell(), 8, 4)
    big = [here.submit(f"big{n}", gpus_per_host=8, settle=False) for n in range(3)]
    small = here.submit("small", gpus_per_host=4, settle=False)
    here.settle()
    assert [here.phase(job) for job in (*big, small)] == ["waiting", "waiting", "waiting", "granted"]
    assert (
        len([e for e in here.events(ReasonBegan) if isinstance(e, ReasonBegan) and e.subject[-9:] == "1800000ms"]) == 1
    )


def test_a_job_waits_in_every_pool_it_accepts_and_is_taken_by_the_first_that_has_room() -> None:
    # rule: 2.7
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1)
    here.submit("full", gpus_per_host=8, pools=("h100",))
    job = here.submit("r1", gpus_per_host=8)
    assert where(here, job) == [("host-002", 8)]
    assert here.world.reasons_of("placement") == {}
    second = here.submit("r2", gpus_per_host=8)
    assert list(here.world.reasons_of("placement")) == ["a/h100+l40s/1x8/1800000ms"]
    here.gone(job)
    assert where(here, second) == [("host-002", 8)]
    assert here.world.reasons_of("placement") == {}


def test_one_class_may_be_granted_in_one_pool_and_wait_in_another() -> None:
    # rule: 2.7
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1)
    jobs = [here.submit(f"r{n}", gpus_per_host=8, settle=False) for n in range(4)]
    here.settle()
    assert [here.phase(job) for job in jobs] == ["granted", "granted", "waiting", "waiting"]
    assert [job.live.pool for job in here.world.jobs.values() if job.live] == ["h100", "l40s"]
    assert len(here.world.reasons_of("placement")) == 1


def test_a_job_that_accepts_a_pool_that_could_never_take_it_waits_for_the_other() -> None:
    # rule: 2.7 9.1
    here = Cell().hosts(1).hosts(1, gpus=4, pool="l40s", first=2).budgets(a=1)
    here.submit("full", gpus_per_host=8, pools=("h100",))
    here.submit("r1", gpus_per_host=8, pools=("h100", "l40s"))
    (reason,) = here.world.reasons_of("placement").values()
    assert (reason.code, reason.evidence.pool) == (Reason.CAPACITY, "h100")


# the debug lane -------------------------------------------------------------------------------------


def licences(here: Cell, jobs: list[str]) -> list[str]:
    return [str(job.attempts[-1].licence) if job.attempts else "-" for job in map(here.world.jobs.get, jobs) if job]


def test_the_lane_goes_before_budgeted_work_that_came_first() -> None:
    # rule: 3.1
    here = filled(cell(1), 8)
    plain = here.submit("plain")
    debug = here.submit("debug", **DEBUG)
    here.gone(next(iter(here.world.jobs)))
    order = [event.job for event in here.events(GangGranted) if isinstance(event, GangGranted)]
    assert order[-2:] == [debug, plain]


def test_the_lane_takes_two_of_a_person_and_the_third_ranks_as_ordinary_work() -> None:
    # rule: 3.1
    here = cell(1)
    mine = [here.submit(f"d{n}", settle=False, **DEBUG) for n in range(3)]
    theirs = here.submit("d9", who="bob", settle=False, **DEBUG)
    here.settle()
    assert licences(here, [*mine, theirs]) == ["debug", "debug", "under-share", "debug"]


def test_the_lane_holds_at_most_one_host_in_a_small_pool() -> None:
    # rule: 3.1
    here = cell(3)
    people = ("ann", "bob", "eve")
    jobs = [here.submit("d1", who=who, gpus_per_host=4, settle=False, **DEBUG) for who in people]
    here.settle()
    assert licences(here, jobs) == ["debug", "debug", "under-share"]


def test_the_lane_holds_a_twentieth_of_a_large_pool() -> None:
    # rule: 3.1
    here = cell(40)
    jobs = [here.submit("d1", who=f"p{n}", gpus_per_host=8, settle=False, **DEBUG) for n in range(3)]
    here.settle()
    assert licences(here, jobs) == ["debug", "debug", "under-share"]


def test_a_full_lane_in_one_pool_leaves_the_lane_of_another_open() -> None:
    # rule: 3.1
    here = Cell().hosts(2).hosts(2, pool="l40s", first=9).budgets(a=1)
    first = here.submit("d1", gpus_per_host=8, pools=("h100",), **DEBUG)
    other = here.submit("d2", who="bob", gpus_per_host=8, pools=("l40s",), **DEBUG)
    assert licences(here, [first, other]) == ["debug", "debug"]


def test_the_lane_has_room_again_when_its_attempts_end() -> None:
    # rule: 3.1
    here = cell(1)
    first = here.submit("d1", gpus_per_host=8, **DEBUG)
    here.gone(first)
    assert licences(here, [here.submit("d2", gpus_per_host=8, **DEBUG)]) == ["debug"]


def test_debug_work_is_charged_like_everything_else() -> None:
    # rule: 3.1 2.4
    here = cell(1)
    job = here.submit("d1", **DEBUG)
    here.at(MINUTE).gone(job, End.FAILED, 1)
    assert here.world.held("a", "h100").integral(0, here.now_ms) == MINUTE


# claims ---------------------------------------------------------------------------------------------


def test_a_claim_closes_its_hosts_to_worse_picks() -> None:
    # rule: 4.2
    here = cell(1)
    here.submit("idle", min_runtime_ms=0, gpus_per_host=6)
    claim = here.submit("claim", gpus_per_host=4, settle=False)
    worse = here.submit("worse", gpus_per_host=2, min_runtime_ms=HOUR, settle=False)
    here.step("ranker")
    keys = ("a/h100/1x2/3600000ms", "a/h100/1x4/1800000ms")
    kept = {"pool": "h100", "needed_hosts": 1, "reserved_hosts": 1, "claim": claim, "for_ms": 2 * MINUTE}
    closed, own = (Evidence(**(kept | {"needed_gpus": gpus})) for gpus in (2, 4))  # type: ignore[arg-type] # by name
    assert here.step("placement") == [
        ReasonBegan(subject=keys[0], code=Reason.RESERVATION, evidence=closed),
        ReasonBegan(subject=keys[1], code=Reason.RESERVATION, evidence=own),
        CyclePlaced(cycle=2, claims=(Claim(job=claim, pool="h100", key=keys[1], licence=Licence.UNDER_SHARE),)),
    ]
    here.settle()
    assert here.phase(worse) == "waiting"


def test_a_job_that_waits_only_for_the_next_record_evicts_nobody_elsewhere() -> None:
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1).policy(max_grants_per_cycle=1)
    idle = here.submit("idle", min_runtime_ms=0, gpus_per_host=8, pools=("l40s",))
    first, second = (here.submit(f"r{n}", gpus_per_host=4, settle=False) for n in range(2))
    here.settle()
    assert [here.phase(job) for job in (idle, first, second)] == ["granted"] * 3


def test_idle_work_claims_nothing() -> None:
    # rule: 3.8
    here = cell(1)
    here.submit("idle", min_runtime_ms=0, gpus_per_host=8)
    here.submit("more", min_runtime_ms=0, gpus_per_host=8)
    assert [e for e in here.events(CyclePlaced) if isinstance(e, CyclePlaced) and e.claims] == []


def test_a_job_that_no_longer_waits_is_passed_over() -> None:
    here = cell(1)
    first, second = (here.submit(name, settle=False) for name in ("r1", "r2"))
    here.step("ranker")
    here.say(CancelJob(job=first), settle=False)
    assert here.step("placement") == [granted(second, on(1, 0)), CyclePlaced(cycle=1)]
