"""Gangs that begin together (1.15): their parts get ready one by one, and what is ready waits for the rest."""

import msgspec
import pytest

from fairlease.core import view
from fairlease.core.explain import why
from fairlease.core.job import MAX_HOSTS_TOLD
from fairlease.core.order import host_order
from fairlease.core.world import World
from fairlease_schemas.address import is_address
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnding, AttemptStarted, End, JobCancelled, PartGone, PartReady, Rendezvous
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunReady
from tests.dsl.cell import HOUR, MINUTE, Cell

HOSTS = ("host-001", "host-002", "host-003")
AT = Rendezvous(address="10.0.0.1", port=20_001)


def cell(hosts: int = 3) -> tuple[Cell, str]:
    """A gang over these hosts that is granted, and nothing more."""
    here = Cell().hosts(hosts).budgets(a=1)
    return here, here.submit("g", hosts=hosts, gpus_per_host=8, start_limit_ms=10 * MINUTE)


def ordered(here: Cell, host: str) -> RunOrder:
    (run,) = host_order(here.world, host).runs
    return run


def get_ready(here: Cell, job: str, *hosts: str) -> None:
    for host in hosts:
        here.say(here.run_ready(job, AT if host == "host-001" else None), host)


def test_a_gang_goes_when_its_last_part_is_ready_and_is_told_where_it_meets() -> None:
    # rule: 1.15
    here, job = cell()
    attempt = attempt_id(job, 1)
    here.when(here.run_ready(job), who="host-002").then(PartReady(attempt=attempt, host="host-002"))
    here.when(here.run_ready(job, AT), who="host-001").then(PartReady(attempt=attempt, host="host-001", rendezvous=AT))
    assert [(run.is_go, run.rendezvous) for run in (ordered(here, host) for host in HOSTS)] == 3 * [(False, None)]
    before = dict(here.world.ordered)
    here.when(here.run_ready(job), who="host-003").then(PartReady(attempt=attempt, host="host-003")).follows()
    assert [(run.is_go, run.rendezvous) for run in (ordered(here, host) for host in HOSTS)] == 3 * [(True, AT)]
    assert here.world.ordered == dict.fromkeys(HOSTS, here.world.position), "every host has an order of its own"
    assert all(here.world.ordered[host] > before[host] for host in HOSTS)
    assert here.phase(job) == "granted"


def test_no_order_is_written_anew_before_the_last_part_is_ready() -> None:
    # rule: 1.15
    here, job = cell()
    before = dict(here.world.ordered)
    get_ready(here, job, "host-001", "host-002")
    assert here.world.ordered == before


def test_a_job_on_one_host_goes_at_once_and_its_host_need_say_nothing() -> None:
    # rule: 1.15
    here, job = cell(1)
    run = ordered(here, "host-001")
    assert (run.is_go, run.rendezvous) == (True, None)
    assert b"is_go" not in msgspec.json.encode(run), "and its order is what it was before there was a barrier"
    here.when(here.run_ready(job, AT), who="host-001").then()


def test_an_order_says_whose_job_it_is() -> None:
    # rule: 1.16
    here, _ = cell(1)
    assert ordered(here, "host-001").account == "ann"


def test_what_is_said_twice_late_or_by_others_changes_nothing() -> None:
    # rule: 1.15
    here, job = cell()
    attempt, token = attempt_id(job, 1), here.run_ready(job).token
    get_ready(here, job, "host-001")
    elsewhere = Rendezvous(address="10.6.6.6", port=6)
    here.when(here.run_ready(job, elsewhere), who="host-001").then()
    here.when(here.run_ready(job), who="host-009").then()
    here.when(RunReady(attempt=attempt, token="1-1-0"), who="host-002").then()
    here.when(RunReady(attempt=attempt_id(job, 2), token=token), who="host-002").then()
    here.when(here.run_ready(job, elsewhere), who="host-002").then(PartReady(attempt=attempt, host="host-002"))
    here.say(here.run_gone(job, End.FAILED, 1), "host-003")
    here.when(here.run_ready(job), who="host-003").then()
    here.gone(job, End.CANCELLED, 143, hosts=("host-001", "host-002"))
    here.when(here.run_ready(job), who="host-003").then().follows()
    assert here.world.jobs[job].attempts[-1].rendezvous == AT


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(None, id="nothing said"),
        pytest.param(Rendezvous(address="", port=20_000), id="no address"),
        pytest.param(Rendezvous(address="a;reboot", port=20_000), id="no name"),
        pytest.param(Rendezvous(address="x" * 300, port=20_000), id="without bounds"),
        pytest.param(Rendezvous(address="10.0.0.1\nLD_PRELOAD=/x", port=20_000), id="more than a line"),
        pytest.param(Rendezvous(address="10.0.0.1", port=0), id="no port"),
        pytest.param(Rendezvous(address="10.0.0.1", port=1 << 16), id="a port beyond the last"),
        pytest.param(Rendezvous(address="10.0.0.1", port=-1 << 70), id="a port that no snapshot could hold"),
    ],
)
def test_the_first_host_is_not_ready_until_it_says_where_they_meet(at: Rendezvous | None) -> None:
    # rule: 1.15
    here, job = cell(2)
    here.when(here.run_ready(job, at), who="host-001").then()
    get_ready(here, job, "host-002")
    assert not ordered(here, "host-002").is_go
    get_ready(here, job, "host-001")
    assert ordered(here, "host-002").is_go


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *((text, True) for text in ("10.0.0.1", "gpu-7", "gpu-7.lab.example.org", "::1", "fd00::7", "7up", "A")),
        *(
            (text, False)
            for text in ("", "10.0.0", "10.0.0.256", "-a", "a-", "a..b", "a b", "fe80::1%eth0", "1:2", "é")
        ),
        ("x" * 64, False),
        (".".join(["x" * 63] * 4), False),
        ("10.0.0.1\n", False),
    ],
)
def test_an_address_is_a_host_name_or_an_ip_address(text: str, is_one: bool) -> None:
    # rule: 1.15
    assert is_address(text) is is_one


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    # rule: 1.15
    assert str(Rendezvous(address="fd00::7", port=20_000)) == "[fd00::7]:20000"
    assert str(AT) == "10.0.0.1:20001"


def test_the_end_of_one_part_before_the_gang_went_ends_it_all_and_nothing_begins() -> None:
    # rule: 1.15
    here, job = cell()
    attempt = attempt_id(job, 1)
    get_ready(here, job, "host-001", "host-002")
    refused = PartGone(attempt=attempt, host="host-003", end=End.START_FAILED, exit_code=0)
    ending = AttemptEnding(attempt=attempt, end=End.START_FAILED, grace_ms=30_000)
    here.when(here.run_gone(job, End.START_FAILED), who="host-003").then(refused, ending).follows()
    for host in HOSTS[:2]:
        assert (ordered(here, host).is_go, ordered(here, host).stop) == (False, "start-failed")


def test_a_cancel_before_the_gang_went_stops_what_waits() -> None:
    # rule: 1.15
    here, job = cell()
    get_ready(here, job, "host-001", "host-002")
    here.say(CancelJob(job=job))
    assert [ordered(here, host).stop for host in HOSTS] == 3 * ["cancelled"]
    get_ready(here, job, "host-003")
    assert here.phase(job) == "stopping"
    here.gone(job, End.CANCELLED, None)
    assert here.events(JobCancelled) == [JobCancelled(job=job, account="ann")]


def test_the_hosts_that_never_became_ready_are_named_at_the_limit() -> None:
    # rule: 1.15 8.4
    here, job = cell()
    get_ready(here, job, "host-001", "host-003")
    here.at(10 * MINUTE - 1)
    detail = "host-002 never became ready"
    ending = AttemptEnding(attempt=attempt_id(job, 1), end=End.START_FAILED, grace_ms=30_000, detail=detail)
    here.passes(10 * MINUTE).then(ending)
    here.gone(job, End.CANCELLED, None)
    shown = view.job_view(here.world, here.world.jobs[job])
    assert (shown.state, shown.end, shown.attempts[-1].detail) == ("failed", "start-failed", detail)
    assert why(here.world, here.world.jobs[job]).text.en == f"{job} failed (start-failed: {detail})."


def test_of_a_large_gang_the_first_that_are_late_are_named() -> None:
    # rule: 1.15
    here, job = cell(9)
    get_ready(here, job, "host-001", "host-002")
    here.at(10 * MINUTE)
    (ending,) = here.events(AttemptEnding)
    late = [f"host-{n:03d}" for n in range(3, 3 + MAX_HOSTS_TOLD)]
    assert isinstance(ending, AttemptEnding)
    assert ending.detail == f"{', '.join(late)} and 3 more never became ready"


def test_of_a_large_gang_the_first_that_are_waited_for_are_shown_and_of_a_past_attempt_none() -> None:
    # rule: 1.15
    here, job = cell(9)
    get_ready(here, job, "host-001", "host-002")
    late = tuple(f"host-{n:03d}" for n in range(3, 3 + MAX_HOSTS_TOLD))
    shown = view.job_view(here.world, here.world.jobs[job]).attempts[-1]
    assert (shown.not_ready, shown.late_hosts) == (late, 7)
    assert (
        "it waits for host-003, host-004, host-005, host-006 and 3 more"
        in why(here.world, here.world.jobs[job]).text.en
    )
    here.at(10 * MINUTE).gone(job, End.CANCELLED, 143)
    shown = view.job_view(here.world, here.world.jobs[job]).attempts[0]
    assert (shown.not_ready, shown.late_hosts) == ((), 0)


def test_hosts_that_were_ready_and_did_not_start_are_named_too() -> None:
    # rule: 1.15
    here, job = cell()
    get_ready(here, job, *HOSTS)
    for host in HOSTS[:2]:
        here.say(here.run_started(job), host)
    here.at(10 * MINUTE)
    (ending,) = here.events(AttemptEnding)
    assert isinstance(ending, AttemptEnding)
    assert ending.detail == "host-003 never started"


def test_an_agent_of_an_earlier_release_knows_no_barrier_and_the_others_do_not_wait_for_its_word() -> None:
    # rule: 1.15
    here, job = cell()
    get_ready(here, job, "host-002", "host-003")
    started = AttemptStarted(attempt=attempt_id(job, 1), host="host-001")
    here.when(here.run_started(job), who="host-001").then(started).follows()
    assert [(run.is_go, run.rendezvous) for run in (ordered(here, host) for host in HOSTS)] == 3 * [(True, None)]


def test_a_granted_gang_says_how_many_are_ready_and_for_whom_it_waits() -> None:
    # rule: 1.15 9.4
    here, job = cell()
    get_ready(here, job, "host-001", "host-003")
    told = why(here.world, here.world.jobs[job]).text
    hosts = ", ".join(HOSTS)
    assert (
        told.en == f"{job} has its GPUs on {hosts} and is starting; 2 of 3 hosts are ready, and it waits for host-002."
    )
    assert told.zh.endswith("3 台主机中 2 台就绪，正在等待 host-002。")  # noqa: RUF001 - Chinese punctuation
    shown = view.job_view(here.world, here.world.jobs[job]).attempts[-1]
    assert (shown.not_ready, shown.rendezvous) == (("host-002",), "10.0.0.1:20001")
    get_ready(here, job, "host-002")
    told = why(here.world, here.world.jobs[job]).text
    assert told.en == f"{job} has its GPUs on {hosts} and is starting."


def test_the_fold_holds_who_is_ready_across_a_snapshot() -> None:
    # rule: 1.15
    here, job = cell()
    get_ready(here, job, "host-001", "host-002")
    again = World.load(here.world.dump())
    assert again.digest() == here.world.digest()
    assert again.jobs[job].attempts[-1].not_ready == ("host-003",)


def test_a_gang_of_two_thousand_hosts_gets_ready_in_records_that_stay_small() -> None:
    # rule: 1.15
    many = 2_048
    here = Cell().hosts(many, gpus=1).budgets(a=1)
    job = here.submit("g", hosts=many, gpus_per_host=1, start_limit_ms=HOUR)
    hosts = here.world.jobs[job].attempts[-1].hosts
    for start in range(0, many, 100):
        said = [(here.run_ready(job, AT if host == hosts[0] else None), host) for host in hosts[start : start + 100]]
        here.step("admission", tuple(here.answer(one, host) for one, host in said))
        assert len(here.records[-1]) < 64 * 1024
    assert here.world.jobs[job].attempts[-1].is_go
    assert sum(isinstance(event, PartReady) for event in here.events(PartReady)) == many
