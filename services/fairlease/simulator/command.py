"""`fairlease simulate`: one workload, one policy, one seed; the figures as data or as a table."""

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path
from typing import IO, Any, Final

from fairlease.simulator.asked import problem_of, simulate
from fairlease.simulator.machines import SimulationWrong
from fairlease.simulator.page.file import problem_of_place, put
from fairlease.simulator.page.simulation import simulation_page
from fairlease.simulator.workload_file import WorkloadWrong
from fairlease.trace.cells import TraceWrong
from fairlease.trace.complaint import DATA_FORMATS, complain

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
    try:
        problem = problem_of(args) or problem_of_place(args.html, args.log, args.trace, args.workload)
        if problem:
            return complain(problem, USAGE, is_data=is_data)
        with _log(args.log) as log:
            report = simulate(args, log)
    except (TraceWrong, WorkloadWrong, SimulationWrong) as error:
        return complain(f"{args.trace or args.workload} cannot be simulated\n{error}", WRONG_INPUT, is_data=is_data)
    except OSError as error:
        return complain(_unread(args, error), WRONG_INPUT, is_data=is_data)
    if is_data:
        sys.stdout.write(as_json(report, is_line=args.output == "jsonl"))
    else:
        sys.stdout.write(_table(report))
    try:
        if args.html:
            put(args.html, simulation_page(report, args.lang))
            if not is_data and not args.quiet:
                sys.stdout.write(f"\nthe page is written: {args.html}\n")
    except OSError as error:
        return complain(f"--html {args.html}: {error}; the answer on standard output is whole", FAILED, is_data=is_data)
    return GOOD


def _unread(args: argparse.Namespace, error: OSError) -> str:
    """What file it was, why it cannot be had, and what to name instead."""
    why = error.strerror or str(error)
    if args.log and error.filename in (args.log, None):
        return f"--log {args.log}: {why}\n  name a place where a file can be written"
    if args.trace:
        return f"--trace {args.trace}: {why}\n  name a table or a log that can be read"
    return f"--workload {args.workload}: {why}\n  name lab-1024, or a file in its form that can be read"


def as_json(report: dict[str, Any], *, is_line: bool) -> str:
    """The report as one line, or laid out for reading, with every list of numbers on a line of its own."""
    text = json.dumps(report, ensure_ascii=False, indent=None if is_line else 2)
    return _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text) + "\n"


def _log(path: str | None) -> contextlib.AbstractContextManager[IO[bytes] | None]:
    return contextlib.nullcontext() if path is None else Path(path).open("wb")


def _table(report: dict[str, Any]) -> str:
    """One figure a line, by its public name."""
    lines = [(name, report[name]) for name in _SHOWN]
    lines += [(f"wait.{group}.{name}", value) for group, of in report["wait"].items() for name, value in of.items()]
    lines += [
        pair for group in _GROUPS for name, value in report[group].items() for pair in _flat(f"{group}.{name}", value)
    ]
    lines += [(f"fulfilment.{name}", report["fulfilment"][name]) for name in ("mean", "lowest", "at_least_95")]
    lines += [("digest", report["digest"]), ("workload_digest", report["workload_digest"])]
    lines += [("rule", f"{rule['rule']}: {rule['count']}") for rule in report["rules"]]
    return "".join(f"{name:32} {'-' if value is None else value}\n" for name, value in lines)


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - a figure, or a table of figures
    """A figure by its name; of a table each of its figures, their keys joined by dots; nothing of an empty one."""
    if not isinstance(value, dict):
        return [(name, value)]
    return [pair for key, one in value.items() for pair in _flat(f"{name}.{key}", one)]
