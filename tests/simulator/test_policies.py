"""Policies in the engine against the plain simulator, which shares nothing with them, and against known answers."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlease.core.metrics.integral import Period
from fairlease.simulator.engine import T0
from fairlease.simulator.lab_numbers import lab_numbers, lab_numbers_of
from fairlease.simulator.machines import Stopping, Work
from fairlease.simulator.policies import BUDGET_WINDOW, POLICIES
from fairlease.simulator.rankers.plain import Priority
from fairlease.simulator.runs import LONGEST_MS, Simulation
from fairlease_schemas.commands import ChangePolicy
from fairlease_schemas.envelope import Submitted
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS
from tests.house.tree import ROOT
from tests.simulator import naive_shares
from tests.simulator.naive_sim import (
    Answer,
    Job,
    Key,
    Outcome,
    answer,
    fifo_key,
    muri,
    muri_cluster,
    philly,
    preemptive,
    sjf_key,
    srsf_key,
    srtf_key,
    strict,
)

DATA = Path(__file__).parents[1] / "data"
AT_ONCE = Stopping(stop_ms=0, save_ms=0)
TEAM = "team"


def cell(policy: str, hosts: int, gpus: int) -> Simulation:
    run = Simulation(policy, 1, AT_ONCE, Period(T0 - 1, T0 + LONGEST_MS), None)
    run.hosts(hosts, gpus, "gpu", 1 << 20)
    run.budget(TEAM, 1)
    return run


def submit(
    run: Simulation,
    job: Job,
    size: int,
    *,
    budget: str = TEAM,
    window_ms: int = 15 * MINUTE_MS,
    priority: Priority = Priority.NORMAL,
) -> str:
    name = job_id("ann", budget, f"job-{job.number}")
    hosts = max(1, -(-job.gpus // size))
    request = Request(
        hosts=hosts,
        gpus_per_host=size if hosts > 1 else job.gpus,
        pools=("gpu",),
        min_runtime_ms=window_ms,
        timeout_ms=10_000 * DAY_MS,
        grace_ms=0,
        is_resumable=True,
    )
    said = Submitted(budget=budget, request_id=f"job-{job.number}", digest=f"{0:064x}", request=request)
    run.machines.expect(name, Work(left_ms=job.duration_ms, startup_ms=0, saves_permille=1000, priority=priority))
    run.engine.at(T0 + job.submit_ms, lambda: run.engine.say(said, "ann"))
    return name


def played(policy: str, jobs: list[Job], hosts: int, size: int) -> list[Outcome]:
    """Every job's first start and its end, in the order of the jobs."""
    run = cell(policy, hosts, size)
    names = [submit(run, job, size) for job in jobs]
    left = set(names)
    run.on_over = left.discard
    while left:
        run.engine.step()
    done = [run.engine.world.jobs[name] for name in names]
    assert all(one.phase == "succeeded" for one in done)
    return [
        Outcome(job, one.attempts[0].granted_ms - T0, one.ended_ms - T0) for job, one in zip(jobs, done, strict=True)
    ]


def drawn(seed: int, count: int, size: int, hosts: int) -> list[Job]:
    """A small trace: bursts at one instant, gangs up to the whole cell, short and long."""
    rng = random.Random(seed)
    sizes = [gpus for gpus in (1, 2, 3, size // 2, size, 2 * size, size + 1) if 0 < gpus <= hosts * size]
    at_ms, jobs = 0, []
    for number in range(count):
        at_ms += rng.choice((0, 0, 1000, 60_000, 600_000))
        jobs.append(Job(number, at_ms, rng.choice((1000, 60_000, 7_200_000)) * rng.randint(1, 9), rng.choice(sizes)))
    return jobs


@pytest.mark.parametrize("seed", range(200))
def test_on_small_random_cells_first_come_is_that_of_the_plain_simulator(seed: int) -> None:
    hosts, size = seed % 5 + 1, (4, 8)[seed % 2]
    jobs = drawn(seed, 12, size, hosts)
    assert played("fifo", jobs, hosts, size) == sorted(strict(jobs, hosts, size, fifo_key))


@pytest.mark.parametrize("seed", range(40))
def test_on_small_random_cells_the_shortest_go_first_as_in_the_plain_simulator(seed: int) -> None:
    hosts, size = seed % 4 + 1, 4
    jobs = drawn(1000 + seed, 10, size, hosts)
    assert played("sjf", jobs, hosts, size) == sorted(strict(jobs, hosts, size, sjf_key))


@pytest.mark.parametrize(("policy", "key"), [("srtf", srtf_key), ("srsf", srsf_key)])
@pytest.mark.parametrize("seed", range(20))
def test_on_one_host_free_preemption_is_that_of_the_plain_simulator(
    policy: str, key: Callable[[Job, int], Key], seed: int
) -> None:
    jobs = drawn(2000 + seed, 10, 4, 1)
    found = [(one.job, one.end_ms) for one in played(policy, jobs, 1, 4)]
    assert found == sorted((one.job, one.end_ms) for one in preemptive(jobs, 1, 4, key))


TREE = {
    "org-a": ("", 2),
    "org-b": ("", 1),
    "a1": ("org-a", 3),
    "a2": ("org-a", 1),
    "b1": ("org-b", 1),
    "b2": ("org-b", 1),
}
LEAVES = ("a1", "a2", "b1", "b2")


def budget_cell(hosts: int, size: int) -> Simulation:
    """A cell of those budgets, where nothing is promised and nobody saves."""
    run = Simulation("budget-window", 1, AT_ONCE, Period(T0 - 1, T0 + LONGEST_MS), None)
    run.hosts(hosts, size, "gpu", 1 << 20)
    plain = Policy(promises_per_pool=0, saving_after_ms=1000 * DAY_MS, quiet_period_ms=HOUR_MS)
    run.engine.say(ChangePolicy(name="plain", policy=plain), "lead")
    for name, (parent, weight) in TREE.items():
        run.budget(name, weight, parent)
    assert run.engine.world.policy == plain
    return run


def shared_jobs(seed: int, hosts: int, size: int) -> list[naive_shares.Job]:
    """Jobs of all leaves, each done before its window ends."""
    rng = random.Random(seed)
    at_ms, jobs = 0, []
    for number in range(16):
        at_ms += rng.choice((0, 0, 1, MINUTE_MS, 20 * MINUTE_MS))
        gpus = rng.choice([gpus for gpus in (1, 2, size // 2, size, 2 * size) if gpus <= hosts * size])
        window_ms = rng.choice((1, 2, 4)) * HOUR_MS
        job = Job(number, at_ms, window_ms - rng.randint(1, 50 * MINUTE_MS), gpus)
        jobs.append(naive_shares.Job(job, rng.choice(LEAVES), window_ms))
    return jobs


@pytest.mark.parametrize("seed", range(200))
def test_on_small_random_cells_budgets_take_turns_as_in_the_plain_simulator(seed: int) -> None:
    # rule: 3.2
    hosts, size = seed % 4 + 1, (4, 8)[seed % 2]
    jobs = shared_jobs(seed, hosts, size)
    run = budget_cell(hosts, size)
    names = [submit(run, job.plain, size, budget=job.leaf, window_ms=job.window_ms) for job in jobs]
    left = set(names)
    run.on_over = left.discard
    while left:
        run.engine.step()
    done = [run.engine.world.jobs[name] for name in names]
    assert all(len(one.attempts) == 1 for one in done)
    found = [
        Outcome(job.plain, one.attempts[0].granted_ms - T0, one.ended_ms - T0)
        for job, one in zip(jobs, done, strict=True)
    ]
    assert found == naive_shares.budgets(naive_shares.Tree(TREE), jobs, hosts, size)


@pytest.fixture(scope="module")
def ten_thousand() -> list[Job]:
    return philly(DATA / "philly_jobs_82k.csv.gz", "2017-10-01", 10_000)


@pytest.mark.long
def test_ten_thousand_jobs_on_64_hosts_wait_as_two_other_programs_say(ten_thousand: list[Job]) -> None:
    known = Answer(31_887.36, 24_198.64, 14_898, 83_963, 96_865, 2_492_117)
    assert answer(played("fifo", ten_thousand, 64, 8)) == pytest.approx(known, abs=0.01, rel=0)


def test_ten_thousand_jobs_on_128_hosts_do_not_wait(ten_thousand: list[Job]) -> None:
    found = answer(played("fifo", ten_thousand, 128, 8))
    assert found.mean_completion == pytest.approx(7_688.72, abs=0.01, rel=0)
    assert (found.mean_wait, found.wait_p99) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize(("policy", "mean_s", "within"), [("srtf", 193_081.796, 0.025), ("srsf", 185_021.880, 0.01)])
def test_muri_is_as_published(policy: str, mean_s: float, within: float) -> None:
    hosts, size = muri_cluster(DATA / "muri_n8g8.csv")
    found = answer(played(policy, muri(DATA / "muri_trace3.csv", 1015), hosts, size))
    assert found.mean_completion == pytest.approx(mean_s, rel=within)
    assert found.makespan == pytest.approx(8_174_135.28, rel=0.01)


def test_the_higher_stated_priority_goes_first_and_nobody_leaves_for_it() -> None:
    run = cell("static-priority", 1, 8)
    first = submit(run, Job(0, 0, HOUR_MS, 8), 8, priority=Priority.LOW)
    low = submit(run, Job(1, 1, HOUR_MS, 8), 8, priority=Priority.LOW)
    high = submit(run, Job(2, 2, HOUR_MS, 8), 8, priority=Priority.HIGH)
    run.engine.run(T0 + 4 * HOUR_MS)
    jobs = run.engine.world.jobs
    starts = [[attempt.granted_ms - T0 for attempt in jobs[name].attempts] for name in (first, high, low)]
    assert starts == [[0], [HOUR_MS], [2 * HOUR_MS]]


SHARED = ("fair-tree", "hadoop-fair", "usage-decay", "kai-time")


@pytest.mark.parametrize("policy", SHARED)
def test_a_share_policy_gives_two_budgets_what_their_weights_say(policy: str) -> None:
    run = cell(policy, 3, 8)
    for name, weight in (("small", 1), ("large", 2)):
        run.budget(name, weight)
        for number in range(120):
            submit(run, Job(number, 0, HOUR_MS, 8), 8, budget=name)
    run.engine.run(T0 + 60 * HOUR_MS)
    world = run.engine.world
    held = {name: world.held(name, "gpu").integral(T0, T0 + 60 * HOUR_MS) for name in ("small", "large")}
    whole = 3 * 8 * 60 * HOUR_MS
    assert held["large"] / whole == pytest.approx(2 / 3, abs=0.05)
    assert held["small"] / whole == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("policy", SHARED)
def test_under_a_share_policy_idle_work_comes_last_and_who_has_no_room_is_passed(policy: str) -> None:
    run = cell(policy, 2, 8)
    blocker = submit(run, Job(0, 0, 2 * HOUR_MS, 8), 8)
    gang = submit(run, Job(1, 1, HOUR_MS, 16), 8)
    idle = submit(run, Job(2, 1, HOUR_MS, 8), 8, window_ms=0)
    small = submit(run, Job(3, 1, HOUR_MS, 8), 8)
    run.engine.run(T0 + 9 * HOUR_MS)
    jobs = run.engine.world.jobs
    starts = [jobs[name].attempts[0].granted_ms - T0 for name in (blocker, small, idle, gang)]
    assert starts == [0, 1, HOUR_MS + 1, 2 * HOUR_MS + 1]


def test_the_page_names_every_policy_there_is_and_no_other() -> None:
    page = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    table = page.partition("## Policies\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    assert [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)] == list(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_only_our_policy_keeps_a_host_empty_on_the_reference_workload(name: str) -> None:
    """The others have no lane that it would be for: it would be theirs to fill, and they could not."""
    numbers = lab_numbers_of(name, 128)
    assert numbers.debug_spare_hosts == (name == BUDGET_WINDOW)
    assert numbers.quiet_period_ms == lab_numbers(128).quiet_period_ms
