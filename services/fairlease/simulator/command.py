"""`fairlease simulate`: one workload, one policy, one seed; the figures as data or as a table."""

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path
from typing import IO, Any, Final

from fairlease.simulator.machines import SimulationWrong
from fairlease.simulator.page.file import problem_of_place, put
from fairlease.simulator.page.simulation import simulation_page
from fairlease.simulator.runs import simulate_lab, simulate_trace
from fairlease.simulator.scenario import lab_1024
from fairlease.trace.complaint import DATA_FORMATS, complain
from fairlease.trace.reading import read_trace
from fairlease.trace.table import TraceWrong
from fairlease.trace.workload import prepare
from fairlease_schemas.units import DAY_MS

GOOD: Final = 0
FAILED: Final = 1
USAGE: Final = 64
WRONG_INPUT: Final = 65
_NUMBERS: Final = re.compile(r"\[\s+([-0-9.,\s]+?)\s+\]")
_SHOWN: Final = ("policy", "seed", "hosts", "gpus", "days", "availability", "occupancy", "impact", "progress")
_GROUPS: Final = ("jobs", "completion", "preemption", "promises", "speed")


def run(args: argparse.Namespace) -> int:
    """0 with a report; 64 for options that do not go together, 65 for a workload that is wrong."""
    is_data = args.output in DATA_FORMATS
    problem = _problem(args) or problem_of_place(args.html)
    if problem:
        return complain(problem, USAGE, is_data=is_data)
    try:
        with _log(args.log) as log:
            report = _lab(args, log) if args.workload else _trace(args, log)
    except (TraceWrong, SimulationWrong, OSError) as error:
        return complain(f"{args.trace or args.workload} cannot be simulated\n{error}", WRONG_INPUT, is_data=is_data)
    if is_data:
        sys.stdout.write(as_json(report, is_line=args.output == "jsonl"))
    else:
        sys.stdout.write(_table(report))
    try:
        if args.html:
            put(args.html, simulation_page(report, args.lang))
    except OSError as error:
        return complain(f"--html {args.html}: {error}; the answer on standard output is whole", FAILED, is_data=is_data)
    return GOOD


def as_json(report: dict[str, Any], *, is_line: bool) -> str:
    """The report as one line, or laid out for reading, with every list of numbers on a line of its own."""
    text = json.dumps(report, ensure_ascii=False, indent=None if is_line else 2)
    return _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text) + "\n"


def _problem(args: argparse.Namespace) -> str:
    if args.workload and args.limit:
        return "--limit cuts a trace, not a workload: leave it out, or name a --trace"
    if args.trace and (args.days or args.warm_up):
        return "--days and --warm-up are of a workload: a trace is played to its last end; cut it with --limit"
    gpus = lab_1024().cluster.gpus_per_host
    if args.workload and args.hosts and args.hosts[1] != gpus:
        return f"--hosts {args.hosts[0]}x{args.hosts[1]}: the workload is of hosts with {gpus} GPUs: write Nx{gpus}"
    return ""


def _log(path: str | None) -> contextlib.AbstractContextManager[IO[bytes] | None]:
    return contextlib.nullcontext() if path is None else Path(path).open("wb")


def _lab(args: argparse.Namespace, log: IO[bytes] | None) -> dict[str, Any]:
    return simulate_lab(
        policy=args.policy,
        seed=args.seed,
        hosts=args.hosts[0] if args.hosts else 0,
        measured_ms=round(args.days * DAY_MS) if args.days else None,
        warm_up_ms=round(args.warm_up * DAY_MS) if args.warm_up else None,
        log=log,
    )


def _trace(args: argparse.Namespace, log: IO[bytes] | None) -> dict[str, Any]:
    hosts, gpus = args.hosts or (128, 8)
    recorded = read_trace(Path(args.trace), hosts * gpus)
    if recorded.has_outcomes:
        raise SimulationWrong(f"it is a {recorded.format} trace: only philly traces, which record no ends, are known")
    workload = prepare(recorded, hosts=hosts, gpus_per_host=gpus, speed=1.0, limit=args.limit or 0)
    return simulate_trace(recorded, workload, policy=args.policy, seed=args.seed, log=log)


def _table(report: dict[str, Any]) -> str:
    """One figure a line, by its public name."""
    lines = [(name, report[name]) for name in _SHOWN]
    lines += [(f"wait.{group}.{name}", value) for group, of in report["wait"].items() for name, value in of.items()]
    lines += [(f"{group}.{name}", value) for group in _GROUPS for name, value in report[group].items()]
    lines += [(f"fulfilment.{name}", report["fulfilment"][name]) for name in ("mean", "lowest", "at_least_95")]
    lines += [("digest", report["digest"]), ("workload_digest", report["workload_digest"])]
    lines += [("rule", f"{rule['rule']}: {rule['count']}") for rule in report["rules"]]
    return "".join(f"{name:32} {'-' if value is None else value}\n" for name, value in lines)
