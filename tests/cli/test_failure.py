"""What is kept of an attempt that did not end well, as the command line shows it (8.4)."""

import json

import msgspec

from fairlease.cli.exits import OK
from fairlease_schemas.explain import JobView
from fairlease_schemas.failure import FailureEvidence, HostFacts
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import End
from fairlease_schemas.telemetry import GpuSample
from tests.cli.cell import Cell, attempt_view, job_view

JOB = job_id("local", "team-a", "r-1")
SUBMIT = ("submit", "--budget", "team-a", "--min-runtime", "15m", "--timeout", "1h", "--request-id", "r-1", "--wait")
FOUND = FailureEvidence(
    attempt=f"{JOB}-a1",
    host="host-1",
    end=End.FAILED,
    at_ms=1_700_000_009_000,
    exit_code=3,
    lines=("step 7", "RuntimeError: \x1b[31mout of memory"),
    facts=HostFacts(load_permille=3250, free_memory_mib=2048, free_disk_mib=700, uptime_ms=7_200_000),
    gpus=(GpuSample(gpu="GPU-1", temperature_c=81, memory_used_mib=81_000, ecc_uncorrected=2),),
)


def failed(cell: Cell, *digests: tuple[str, str]) -> JobView:
    """A job whose only attempt failed, with what is kept of it by host."""
    hosts = tuple(host for host, _ in digests) or ("host-1",)
    attempt = msgspec.structs.replace(
        attempt_view(JOB, hosts),
        started_ms=1_700_000_001_000,
        ended_ms=1_700_000_009_000,
        end="failed",
        exit_code=3,
        evidence=dict(digests),
    )
    view = job_view(JOB, state="failed", end="failed", exit_code=3, attempts=(attempt,))
    cell.plan.jobs[JOB] = view
    return view


def test_a_failed_job_is_shown_with_its_last_lines_and_its_host(cell: Cell) -> None:
    # rule: 8.4
    failed(cell, ("host-1", cell.keep("host-1", FOUND)))
    seen = cell.run("job", "show", JOB)
    assert seen.code == OK
    assert seen.out.endswith(
        f"\n{JOB}-a1 on host-1\n"
        "  load 3.25, 2 GiB of memory free, 700 MiB of disk free, up 2h\n"
        "  GPU-1: 81 °C, 79 GiB used, 2 uncorrected memory errors\n"
        "  | step 7\n"
        "  | RuntimeError: �[31mout of memory\n"
    )


def test_a_program_has_all_of_it(cell: Cell) -> None:
    # rule: 8.4
    digest = cell.keep("host-1", FOUND)
    failed(cell, ("host-1", digest), ("host-2", "f" * 64))
    told = json.loads(cell.run("job", "show", JOB, "--json").out)
    kept = json.loads(msgspec.json.encode(FOUND))
    assert told["evidence"] == [
        {"attempt": f"{JOB}-a1", "host": "host-1", "digest": digest, "is_there": True, **kept},
        {"attempt": f"{JOB}-a1", "host": "host-2", "digest": "f" * 64, "is_there": False},
    ]


def test_what_was_erased_or_put_in_its_place_is_said_not_to_be_there(cell: Cell) -> None:
    # rule: 8.4
    digest = cell.keep("host-1", FOUND, digest="a" * 64)
    failed(cell, ("host-1", digest))
    assert "not there any more" in cell.run("job", "show", JOB).out


def test_a_job_that_ended_well_is_shown_as_ever(cell: Cell) -> None:
    # rule: 8.4
    failed(cell)
    seen = cell.run("job", "show", JOB)
    assert "not there any more" not in seen.out
    assert "evidence" not in json.loads(cell.run("job", "show", JOB, "--json").out)


def test_who_waited_reads_the_last_lines_beside_the_end(cell: Cell) -> None:
    # rule: 8.4
    failed(cell, ("host-1", cell.keep("host-1", FOUND)))
    seen = cell.run(*SUBMIT, "--", "false")
    assert seen.code == 3
    assert seen.out == f"{JOB}\n"
    assert seen.err.endswith("it printed last:\n  | step 7\n  | RuntimeError: �[31mout of memory\n")
    assert cell.run(*SUBMIT, "--quiet", "--", "false").err.count("step 7") == 0


def test_who_followed_has_read_them(cell: Cell) -> None:
    # rule: 8.4
    failed(cell, ("host-1", cell.keep("host-1", FOUND)))
    cell.plan.log = {"host-1": "step 7\n"}
    seen = cell.run(*SUBMIT, "--follow", "--", "false")
    assert (seen.code, "it printed last" in seen.err) == (3, False)


def test_a_program_that_waits_has_them_as_a_line(cell: Cell) -> None:
    # rule: 8.4
    failed(cell, ("host-1", cell.keep("host-1", FOUND)))
    told = [json.loads(line) for line in cell.run(*SUBMIT, "--json", "--", "false").err.splitlines()]
    assert told[-1] == {
        "kind": "LastLines",
        "attempt": f"{JOB}-a1",
        "lines": ["step 7", "RuntimeError: �[31mout of memory"],
    }
