import json

import msgspec

from fairlease.cli.exits import FAILED, OK
from tests.cli.cell import Cell, attempt_view, eventually, job_view

JOB = "job-" + "l" * 20
TEXT = "line one\nline two\nno end"


def ran(cell: Cell, *hosts: str) -> None:
    """A job that is over after one attempt on these hosts."""
    attempt = msgspec.structs.replace(attempt_view(JOB, hosts), ended_ms=1_700_000_000_000, end="succeeded")
    cell.plan.jobs[JOB] = job_view(JOB, state="succeeded", attempts=(attempt,))


def test_a_log_is_printed_as_the_job_wrote_it(cell: Cell) -> None:
    ran(cell, "host-1")
    cell.plan.log = {"host-1": TEXT}
    assert cell.run("job", "logs", JOB) == (OK, TEXT, "")
    assert cell.run("job", "logs", f"{JOB}-a1").out == TEXT


def test_the_lines_of_a_gang_begin_with_their_host(cell: Cell) -> None:
    ran(cell, "host-1", "host-2")
    cell.plan.log = {"host-1": "a\nb", "host-2": "c\n"}
    assert cell.run("job", "logs", JOB).out == "host-1 | a\nhost-1 | b\nhost-2 | c\n"
    assert cell.run("job", "logs", JOB, "--host", "host-2").out == "c\n"


def test_pages_are_json_lines_for_a_program(cell: Cell) -> None:
    ran(cell, "host-1")
    cell.plan.log = {"host-1": TEXT}
    pages = [json.loads(line) for line in cell.run("job", "logs", JOB, "--json").out.splitlines()]
    assert "".join(page["data"] for page in pages) == TEXT
    assert {(page["attempt"], page["host"]) for page in pages} == {(f"{JOB}-a1", "host-1")}


def test_what_has_no_log_is_1_and_says_why(cell: Cell) -> None:
    cell.plan.jobs[JOB] = job_view(JOB)
    assert "has not run yet" in cell.run("job", "logs", JOB).err
    ran(cell, "host-1")
    for words, said in (
        ((), "no log from host-1: no such log"),
        (("--attempt", "2"), "has no attempt 2; the latest is 1"),
        (("--host", "host-9"), "has no part on host-9; it ran on host-1"),
    ):
        seen = cell.run("job", "logs", JOB, *words)
        assert (seen.code, said in seen.err) == (FAILED, True)


def test_following_goes_on_from_one_attempt_to_the_next(cell: Cell) -> None:
    first = attempt_view(JOB, ("host-1",))
    cell.plan.jobs[JOB] = job_view(JOB, state="running", attempts=(first,))
    cell.plan.log = {"host-1": "first run\n"}
    with cell.start("job", "logs", JOB, "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first run\n"
        ended = msgspec.structs.replace(first, ended_ms=1_700_000_000_000, end="preempted")
        second = msgspec.structs.replace(first, attempt=f"{JOB}-a2", number=2, hosts=("host-2",))
        cell.plan.jobs[JOB] = job_view(JOB, state="running", attempts=(ended, second))
        assert eventually(lambda: ("logs", {"host": "host-2"}) in cell.plan.asked)
        cell.plan.log["host-2"] = "second run\n"
        assert process.stdout.readline() == "second run\n"
        over = msgspec.structs.replace(second, ended_ms=1_700_000_001_000, end="succeeded")
        cell.plan.jobs[JOB] = job_view(JOB, state="succeeded", attempts=(ended, over))
        assert process.stdout.read() == ""
    assert process.returncode == OK
