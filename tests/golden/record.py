"""Records the golden logs, each named for what it guards: `python -m tests.golden.record`.

A log that exists is never written again: a changed behaviour takes a new policy name and a log of
its own beside the old one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from fairlease_schemas.commands import (
    AcceptChange,
    CancelJob,
    ChangeBudget,
    ChangeMember,
    ChangePolicy,
    CordonHost,
    HoldJob,
    RecordEvaluation,
    ReleaseJob,
    ReportChange,
    RequestDrain,
    ReturnHost,
    UndrainHost,
)
from fairlease_schemas.envelope import LeasesRead, Misshapen, TimerFired, Unreadable
from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.host import Check
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import After, Array, End, Mismatch, Problem, Rendezvous
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import CheckpointDone, HostUp, RunGone
from tests.dsl.cell import DAY, HOUR, MINUTE, SECOND, T0, Cell, inventory, submitted
from tests.dsl.proposals import proposed, reported

FOLDER: Final = Path(__file__).parent
DEBUG: Final[dict[str, object]] = {"lane": "debug", "min_runtime_ms": 10 * MINUTE, "timeout_ms": HOUR}


def idle_work_gives_way() -> Cell:
    """Idle work fills a cell; claims evict the cheapest of it, keep their hosts, run out of time, are cancelled."""
    cell = Cell().hosts(6, block=2).budgets(a=1, b=2).policy(rank_period_ms=MINUTE)
    idle = [cell.submit(f"i{n}", gpus_per_host=gpus, min_runtime_ms=0) for n, gpus in enumerate((4, 4, 8, 6, 2, 8))]
    cell.at(5 * MINUTE)
    idle.append(cell.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=0))
    for job in idle:
        cell.start(job)
    cell.at(9 * MINUTE)
    first = cell.submit("c1", gpus_per_host=8)
    second = cell.submit("c2", "b", hosts=2, gpus_per_host=8, min_runtime_ms=HOUR)
    third = cell.submit("c3", "b", gpus_per_host=3)
    debug = cell.submit("d1", who="bob", gpus_per_host=2, **DEBUG)
    evicted = [job for job in idle if cell.phase(job) == "stopping"]
    cell.say(CancelJob(job=second))
    for job in evicted[::2]:
        cell.gone(job, End.CANCELLED, 143)
    cell.at(13 * MINUTE)
    for job in evicted[1::2]:
        if cell.world.jobs[job].live:
            cell.gone(job, End.CANCELLED, 143)
    cell.at(20 * MINUTE)
    for job in (first, third, debug):
        if cell.world.jobs[job].live:
            cell.start(job).gone(job)
    return cell.at(30 * MINUTE)


def gangs_fail_and_come_back() -> Cell:
    """Gangs whose parts fail, time out, are lost and cancelled; reports that lie, repeat and cross; retries."""
    cell = Cell().hosts(4, block=2).budgets(org=1, org__a=3, org__b=1).policy(rank_period_ms=10 * MINUTE)
    gang = cell.submit("g1", hosts=2, gpus_per_host=8, max_retries=2, timeout_ms=HOUR, on_timeout="requeue")
    slow = cell.submit("g2", "b", hosts=2, gpus_per_host=8, timeout_ms=30 * MINUTE, is_resumable=False)
    waits = cell.submit("w1", hosts=3, gpus_per_host=8, min_runtime_ms=HOUR)
    hosts = cell.world.jobs[gang].attempts[0].hosts
    cell.start(gang).start(slow)
    cell.at(3 * MINUTE).gone(gang, End.FAILED, 3, hosts=hosts[:1])
    cell.say(cell.run_gone(gang, End.FAILED, 3), hosts[0])
    cell.say(RunGone(attempt=f"{gang}-a1", token="1-1-0", end=End.SUCCEEDED, exit_code=0), hosts[1])
    cell.gone(gang, End.CANCELLED, 143, hosts=hosts[1:])
    cell.at(4 * MINUTE).gone(gang, End.LOST, None)
    cell.say(submitted("g1", hosts=2, gpus_per_host=8))
    cell.say(submitted("g3", "nowhere"))
    cell.say(Misshapen(budget="a", request_id="g4", problems=(Problem(field="spec.timeout", rule="1.5"),)))
    cell.step("admission", (cell.answer(Unreadable(size=3, sha256="ab" * 32, error="no such verb or kind")),))
    cell.say(CancelJob(job=waits), "eve")
    cell.at(31 * MINUTE)
    cell.gone(slow, End.CANCELLED, 143)
    late = cell.submit("g5", settle=False)
    cell.step("ranker")
    placed = cell.draft("placement")
    cell.say(CancelJob(job=late), settle=False)
    cell.append(placed)
    cell.settle()
    cell.at(70 * MINUTE)
    for job in (gang, waits):
        if cell.world.jobs[job].live:
            cell.gone(job, End.CANCELLED, 143)
    cell.gone(cell.submit("g6"), End.FAILED, 1)
    cell.away.add("placement")
    cell.submit("g7")
    cell.at(70 * MINUTE + 12 * SECOND)
    cell.away.clear()
    cell.settle()
    return cell.at(2 * HOUR)


def shares_over_a_week() -> Cell:
    """Two pools, a tree that changes, hosts that come, go and change, a rank that is cut, a lane that is full."""
    cell = Cell().hosts(3).hosts(2, gpus=4, pool="l40s", first=9).budgets(org=2, org__a=1, org__b=1, lab=1)
    cell.policy(rank_period_ms=6 * HOUR, max_classes_per_pool=3, max_grants_per_cycle=2, lookback_ms=3 * DAY)
    for day in range(7):
        for n, budget in enumerate(("a", "b", "lab")):
            window_ms = (0, HOUR, 2 * HOUR, 30 * MINUTE)[(day + n) % 4]
            gpus = (1, 4, 8, 3, 2)[(day + 2 * n) % 5]
            fields = {"gpus_per_host": gpus, "min_runtime_ms": window_ms, "timeout_ms": 12 * HOUR}
            cell.submit(f"r{day}-{n}", budget, settle=False, **fields)
        for n in range(3):
            cell.submit(f"s{day}-{n}", "lab", settle=False)
        cell.submit(f"d{day}", who="bob", gpus_per_host=4, **DEBUG)
        cell.at(day * DAY + 8 * HOUR)
        for job in [job.id for job in cell.world.jobs.values() if job.live and job.live.ending is None][::2]:
            cell.start(job).gone(job)
        _of_the_day(cell, day)
        cell.at((day + 1) * DAY)
        for job in [job.id for job in cell.world.jobs.values() if job.live and job.live.ending is not None]:
            cell.gone(job, End.CANCELLED, 143)
    return cell


def _of_the_day(cell: Cell, day: int) -> None:
    """What else happens on that day."""
    match day:
        case 0:
            cell.budgets(lab=3).submit("huge", "lab", hosts=3, gpus_per_host=8, min_runtime_ms=HOUR)
        case 1:
            cell.say(CordonHost(host="host-002", reason="fan"), "ops")
        case 2:
            cell.budgets(lab__b=2)
        case 3:
            cell.say(ReturnHost(host="host-002"), "ops")
            cell.say(HostUp(incarnation="boot-2", inventory=inventory(1, gpus=6)), "host-001")
        case 4:
            cell.policy(rank_period_ms=3 * HOUR, debug_per_person=1, lookback_ms=5 * DAY)
        case 5:
            cell.say(HostUp(incarnation="boot-3", inventory=inventory(1)), "host-001")
            cell.step("admission", (cell.answer(TimerFired(due_ms=T0 + SECOND), "admission", "FL_LAB_TIMERS"),))
        case _:
            cell.say(CancelJob(job=job_id("ann", "lab", "huge")))


def promises_and_people() -> Cell:
    """Windows, a promise kept, one replaced and one voided; checkpoints, holds, waits for others, members."""
    cell = Cell().hosts(4, block=2).budgets(a=1, b=1).policy(rank_period_ms=MINUTE, promise_permille=1000)
    cell.say(ChangeMember(budget="b", account="eve", role="member"), "lead")
    first = cell.submit("p1", hosts=4, gpus_per_host=8, min_runtime_ms=2 * HOUR, timeout_ms=8 * HOUR)
    cell.start(first).at(30 * MINUTE)
    live = cell.world.jobs[first].attempts[-1]
    cell.say(CheckpointDone(attempt=live.id, token=str(live.token), step=100), live.hosts[0])
    cell.at(HOUR)
    second = cell.submit("p2", "b", who="bob", gpus_per_host=8, min_runtime_ms=30 * MINUTE, timeout_ms=8 * HOUR)
    cell.at(HOUR + 10 * MINUTE)
    held = cell.submit("p3", "b", who="bob", gpus_per_host=8, min_runtime_ms=30 * MINUTE)
    cell.say(HoldJob(job=held), "bob")
    later = cell.submit("p4", "b", who="bob", after=(After(job=second, when="any"),))
    cell.at(2 * HOUR + MINUTE)
    if cell.phase(first) == "stopping":
        cell.gone(first, End.CANCELLED, 143)
    cell.at(2 * HOUR + 2 * MINUTE)
    cell.say(ReleaseJob(job=held), "bob")
    cell.start(second).at(3 * HOUR).gone(second)
    cell.at(3 * HOUR + MINUTE)
    third = cell.submit("p5", "b", who="bob", hosts=4, gpus_per_host=8, min_runtime_ms=30 * MINUTE)
    cell.at(3 * HOUR + 10 * MINUTE)
    for job in (third, later):
        cell.say(CancelJob(job=job), "bob")
    return cell.at(5 * HOUR)


def hosts_come_and_go() -> Cell:
    """Hosts go silent and are heard again, leases are lost, a breaker trips; drains wait, are planned, called off."""
    cell = Cell().hosts(8, block=4).budgets(a=1, b=1).policy(rank_period_ms=MINUTE, breaker_permille=300)
    gang = cell.submit("g1", hosts=3, gpus_per_host=8, min_runtime_ms=2 * HOUR, timeout_ms=12 * HOUR)
    idle = [cell.submit(f"i{n}", "b", gpus_per_host=8, min_runtime_ms=0, timeout_ms=12 * HOUR) for n in range(4)]
    halves = [
        cell.submit(f"h{n}", gpus_per_host=4, min_runtime_ms=(n + 1) * HOUR, timeout_ms=12 * HOUR) for n in range(2)
    ]
    for job in (gang, *idle, *halves):
        cell.start(job)
    cell.at(10 * MINUTE)
    lost = cell.world.jobs[gang].attempts[0].hosts[0]
    for minutes in (11, 15, 17):
        cell.at(minutes * MINUTE)
        renewed = {f"host-{n:03d}": cell.now_ms for n in range(1, 9)} | {lost: T0 + 10 * MINUTE}
        said = LeasesRead(due_ms=cell.now_ms, renewed=renewed)
        cell.step("health", (cell.answer(said, "health", "FL_LAB_TIMERS"),))
        cell.settle()
    cell.gone(gang, End.CANCELLED, 143, hosts=cell.world.jobs[gang].attempts[-1].hosts[1:])
    for job in idle:
        if cell.phase(job) == "stopping":
            cell.gone(job, End.CANCELLED, 143)
    cell.at(30 * MINUTE)
    cell.say(RequestDrain(host=cell.world.jobs[halves[0]].attempts[0].hosts[0]), "bot")
    for host, before in (("host-004", 2 * HOUR), ("host-005", 0), ("host-006", 3 * HOUR), ("host-007", 0)):
        start_ms = before and T0 + before
        ask = RequestDrain(host=host, reason="firmware", not_before_ms=start_ms, deadline_ms=T0 + 4 * HOUR)
        cell.say(ask, "bot")
    cell.say(UndrainHost(host="host-006"), "bot")
    for hours in (1, 2, 3, 4, 5):
        cell.at(hours * HOUR)
        for job in [job.id for job in cell.world.jobs.values() if job.live and job.live.ending is not None]:
            cell.gone(job, End.CANCELLED, 143)
    silent = {f"host-{n:03d}": 0 for n in range(1, 9)}
    cell.step("health", (cell.answer(LeasesRead(due_ms=cell.now_ms, renewed=silent), "health", "FL_LAB_TIMERS"),))
    for host in [host.id for host in cell.world.fleet.draining()]:
        cell.say(ReturnHost(host=host), "bot")
    heard = {f"host-{n:03d}": cell.now_ms for n in range(1, 9)}
    cell.step("health", (cell.answer(LeasesRead(due_ms=cell.now_ms, renewed=heard), "health", "FL_LAB_TIMERS"),))
    return cell.at(6 * HOUR)


def gangs_begin_together() -> Cell:
    """Gangs that get ready part by part: one goes, one is late, one is refused, one is lost; some words lie."""
    cell = Cell().hosts(8, block=4).budgets(a=1).policy(rank_period_ms=MINUTE)
    goes, late, refused, lost = (
        cell.submit(name, hosts=2, gpus_per_host=8, start_limit_ms=5 * MINUTE, max_retries=1)
        for name in ("goes", "late", "refused", "lost")
    )
    for job in (goes, late, refused, lost):
        first, second = cell.world.jobs[job].attempts[-1].hosts
        at = Rendezvous(address=f"10.0.0.{int(first[-3:])}", port=20_000)
        cell.say(cell.run_ready(job), first)
        cell.say(cell.run_ready(job, at), second if job == late else first)
        cell.say(cell.run_ready(job, Rendezvous(address="not an address", port=1)), first)
        if job == goes:
            cell.say(cell.run_ready(job), second)
            cell.say(cell.run_ready(job), second)
    cell.start(goes).at(MINUTE)
    hosts = cell.world.jobs[refused].attempts[-1].hosts
    cell.gone(refused, End.START_FAILED, None, hosts=hosts[1:])
    cell.gone(refused, End.CANCELLED, None, hosts=hosts[:1])
    silent = cell.world.jobs[lost].attempts[-1].hosts[1]
    cell.at(4 * MINUTE)
    renewed = {f"host-{n:03d}": cell.now_ms for n in range(1, 9)} | {silent: T0}
    said = LeasesRead(due_ms=cell.now_ms, renewed=renewed)
    cell.step("health", (cell.answer(said, "health", "FL_LAB_TIMERS"),))
    cell.settle()
    for _ in range(2):
        cell.at(cell.now_ms - T0 + 2 * MINUTE)
        for job in (late, lost):
            live = cell.world.jobs[job].live
            if live is not None and live.ending is not None:
                left = [host for host in live.hosts if all(part.host != host for part in live.gone)]
                cell.gone(job, End.CANCELLED, None, hosts=left)
    return cell.gone(goes).at(HOUR)


def attempts_end_and_what_comes_after() -> Cell:
    """Faults leave rests of windows, jobs leave to go on, begin anew, keep to their pools; hosts return by checks."""
    cell = Cell().hosts(3).hosts(2, pool="l40s", first=9).budgets(a=1, b=1)
    cell.policy(rank_period_ms=MINUTE, on_resume_refused="restart", return_checks=("memory",))
    long: dict[str, object] = {"timeout_ms": 24 * HOUR, "max_retries": 2, "pools": ("h100", "l40s")}
    gang = cell.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=2 * HOUR, **long)
    moves, bound, free = (cell.submit(f"m{n}", "b", gpus_per_host=4, min_runtime_ms=HOUR, **long) for n in range(3))
    for job in (gang, moves, bound, free):
        cell.start(job)
    cell.at(30 * MINUTE)
    for hosts in range(2):  # twice in a row, and the second time past the window
        broken, other = cell.world.jobs[gang].attempts[-1].hosts
        cell.gone(gang, End.FAULT, None, hosts=[broken]).gone(gang, End.CANCELLED, 143, hosts=[other])
        cell.at((hosts + 3) * HOUR)
    for job, is_bound, code in ((bound, True, 85), (free, False, 85), (moves, True, 1)):
        attempt = cell.world.jobs[job].attempts[-1]
        done = CheckpointDone(attempt=attempt.id, token=str(attempt.token), step=9, is_bound=is_bound)
        cell.say(done, attempt.hosts[0])
        cell.say(replace(cell.run_gone(job, End.FAILED, code), evidence="e" * 64), attempt.hosts[0])
    cell.at(5 * HOUR)
    for _ in range(2):  # what begins anew and is refused again is over
        attempt = cell.world.jobs[moves].attempts[-1]
        wrong = (Mismatch(field="commit", wanted="a", found="b"),)
        refused = RunGone(attempt=attempt.id, token=str(attempt.token), end=End.START_FAILED, mismatches=wrong)
        cell.say(refused, attempt.hosts[0])
    cell.say(RequestDrain(host="host-003"), "bot")
    cell.at(8 * HOUR)
    for job in [job.id for job in cell.world.jobs.values() if job.live and job.live.ending is not None]:
        cell.gone(job, End.CANCELLED, 143)
    for code, at_ms in ((0, T0), (2, cell.now_ms), (0, cell.now_ms)):
        cell.say(
            ReturnHost(host="host-003", checks=(Check(name="memory", code=code, at_ms=at_ms, output="8/8"),)), "bot"
        )
    return cell.at(10 * HOUR)


def evaluations_are_judged() -> Cell:
    """Evaluations of two budgets are recorded, once and again, by members and strangers, with their jobs or without."""
    cell = Cell().hosts(2).budgets(a=1, b=1)
    for budget in ("a", "b"):
        cell.gone(cell.submit("mmlu", budget, evaluation="mmlu"))
    many = cell.submit("many", who="bob", evaluation="gsm", array=Array(count=2))
    cell.say(ChangeMember(budget="b", account="*", role=""), "lead")
    passed = RecordEvaluation(request_id="e1", evaluation="mmlu", outcome=Outcome.PASSED)
    for who, said in (
        ("ann", replace(passed, score_permille=873)),
        ("ann", replace(passed, score_permille=873)),
        ("ann", replace(passed, outcome=Outcome.FAILED)),
        ("ann", replace(passed, request_id="e2", outcome=Outcome.ERROR)),
        ("lead", replace(passed, request_id="e3")),
        ("lead", replace(passed, request_id="e3", budget="b", outcome=Outcome.FAILED)),
        ("bob", replace(passed, request_id="e4", evaluation="gsm", job=many)),
        ("bob", replace(passed, request_id="e5", evaluation="gsm", budget="b")),
    ):
        cell.say(said, who)
        cell.at(cell.now_ms - T0 + SECOND)
    return cell.at(HOUR)


def changes_are_judged_first() -> Cell:
    """Budgets and policy are proposed, reported on by good and bad reports, accepted, forced by two, and forgotten."""
    cell = Cell().hosts(2).budgets(a=1, b=1)
    for account in ("lead", "second"):
        cell.say(ChangeMember(budget="/", account=account, role="lead"), "lead")
    cell.say(ChangePolicy(name="gated", policy=Policy(change_gate="reported")), "lead")
    for number, budget in enumerate("ab"):
        cell.submit(f"r{number}", budget, gpus_per_host=8)
    cell.at(3 * DAY)
    heavier, wider = ChangeBudget(budget="a", weight=3), ChangePolicy(name="wide", policy=Policy(margin_permille=50))
    cell.say(heavier, "lead")
    cell.say(wider, "ann")
    good = reported(proposed(cell, heavier))
    for report in (replace(good, span_ms=9 * DAY), replace(good, log_digest="0" * 64), good, good):
        cell.say(ReportChange(report=report), "bot")
    proposed(cell, wider)
    cell.say(AcceptChange(proposal="wider", report=good.digest), "lead")
    for _ in range(2):
        cell.say(AcceptChange(proposal="wider", is_forced=True, reason="now"), "lead")
    proposal = proposed(cell, heavier, ChangeBudget(budget="c", weight=1), name="heavier", who="second")
    report = reported(proposal)
    cell.say(ReportChange(report=report), "second")
    cell.say(AcceptChange(proposal="heavier", report=report.digest), "second")
    proposed(cell, wider)
    for who in ("lead", "ann", "second"):
        cell.say(AcceptChange(proposal="wider", is_forced=True), who)
    proposed(cell, ChangeBudget(budget="a", weight=4), name="late")
    cell.at(5 * DAY)
    proposed(cell, ChangeBudget(budget="a", weight=5), name="later")
    return cell.at(6 * DAY)


def refusals_are_told_together() -> Cell:
    """Floods of commands that cannot be taken, at all who take commands, with good ones and others' among them."""
    cell = Cell().hosts(2).budgets(a=1)
    garbage = Unreadable(size=3, sha256="ab" * 32, error="no JSON")
    for service, said in (
        ("admission", CancelJob(job="job-aaaaaaaaaaaaaaaaaaaa")),
        ("ledger", ChangeMember(budget="none", account="bob", role="member")),
        ("health", CordonHost(host="host-none")),
    ):
        flood = [cell.answer(one, "eve") for one in (said, garbage) * 6]
        cell.step(service, (*flood, cell.answer(said, "bob"), cell.answer(garbage, "host-001", "FL_LAB_REPORTS")))
    flood = [cell.answer(submitted(f"r{n}", "nowhere"), "eve") for n in range(12)]
    cell.step("admission", (*flood[:6], cell.answer(submitted("good"), "eve"), *flood[6:]))
    cell.settle()
    return cell.at(HOUR)


LOGS: Final[dict[str, Callable[[], Cell]]] = {
    "idle-work-gives-way": idle_work_gives_way,
    "gangs-fail-and-come-back": gangs_fail_and_come_back,
    "shares-over-a-week": shares_over_a_week,
    "promises-and-people": promises_and_people,
    "hosts-come-and-go": hosts_come_and_go,
    "gangs-begin-together": gangs_begin_together,
    "attempts-end-and-what-comes-after": attempts_end_and_what_comes_after,
    "evaluations-are-judged": evaluations_are_judged,
    "changes-are-judged-first": changes_are_judged_first,
    "refusals-are-told-together": refusals_are_told_together,
}


def main() -> None:
    """Write the logs that are not there yet, one canonical record a line."""
    for name, story in LOGS.items():
        path = FOLDER / f"{name}.jsonl"
        if not path.exists():
            path.write_bytes(b"".join(data + b"\n" for data in story().records))
            print(f"{path.name}: {len(path.read_bytes().splitlines())} records")


if __name__ == "__main__":
    main()
