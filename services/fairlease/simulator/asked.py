"""From the options of the command line to a simulation: which workload, and what of it."""

import argparse
from pathlib import Path
from typing import IO, Any, Final

from fairlease.simulator.policies import POLICIES
from fairlease.simulator.runs import simulate_lab, simulate_trace
from fairlease.simulator.workload_file import file_of, scenario_of
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Recorded
from fairlease.trace.wishes import CHECKPOINT_MS, Wishes
from fairlease.trace.workload import Workload, prepare
from fairlease_schemas.units import DAY_MS

HOSTS: Final = (128, 8)
"""Of a trace, where nobody says how many."""
_OF_A_TRACE: Final = (
    "format",
    "limit",
    "begin",
    "runtime_factor",
    "load",
    "weights",
    "checkpoint",
    "startup",
    "mtbf_days",
)
_OF_A_WORKLOAD: Final = ("days", "warm_up")
_SPELT: Final = {"begin": "from"}


def problem_of(args: argparse.Namespace) -> str:
    """Why these options do not go together; empty when they do. OSError or WorkloadWrong for a workload in a file."""
    if _is_same(args.log, args.trace or args.workload):
        return f"--log {args.log} is the file that is read, and would be lost: name another"
    if args.policy not in POLICIES:
        return f"--policy: {args.policy!r} is not a policy: write one of {', '.join(POLICIES)}"
    if args.workload:
        if given := _given(args, _OF_A_TRACE):
            return f"{given} is of a trace, and --workload {args.workload} is none: leave it out, or name a --trace"
        return hosts_problem(args)
    if given := _given(args, _OF_A_WORKLOAD):
        return f"{given} is of a workload: a trace is played to its last end; cut it with --from and --limit"
    return ""


def _is_same(written: str | None, read: str) -> bool:
    """Whether writing the one would destroy the other, by whatever names."""
    return written is not None and Path(written).exists() and Path(read).exists() and Path(written).samefile(read)


def _given(args: argparse.Namespace, names: tuple[str, ...]) -> str:
    """The first of these options that somebody gave, as it is spelt."""
    found = next((name for name in names if getattr(args, name) is not None), "")
    return found and "--" + _SPELT.get(found, found).replace("_", "-")


def hosts_problem(args: argparse.Namespace) -> str:
    """Why a workload has no such hosts; empty where it has. OSError or WorkloadWrong for one in a file."""
    if not args.hosts:
        return ""
    gpus = scenario_of(file_of(args.workload))[0].cluster.gpus_per_host
    if args.hosts[1] == gpus:
        return ""
    return f"--hosts {args.hosts[0]}x{args.hosts[1]}: the workload is of hosts with {gpus} GPUs: write Nx{gpus}"


def simulate(args: argparse.Namespace, log: IO[bytes] | None) -> dict[str, Any]:
    """The report of what was asked for. OSError, WorkloadWrong, TraceWrong, or SimulationWrong when there is none."""
    if args.workload:
        return simulate_lab(
            policy=args.policy,
            seed=args.seed,
            hosts=args.hosts[0] if args.hosts else 0,
            measured_ms=round(args.days * DAY_MS) if args.days else None,
            warm_up_ms=round(args.warm_up * DAY_MS) if args.warm_up else None,
            log=log,
            file=file_of(args.workload),
        )
    recorded, workload = prepared(args)
    return simulate_trace(
        recorded,
        workload,
        policy=args.policy,
        seed=args.seed,
        log=log,
        mtbf_days=args.mtbf_days or 0,
        startup_ms=args.startup or 0,
    )


def prepared(args: argparse.Namespace) -> tuple[Recorded, Workload]:
    """The trace as it is on disk, and made ready for the cluster that was asked for."""
    recorded = read_trace(Path(args.trace), args.format or "")
    hosts, gpus = args.hosts or HOSTS
    asked = {"begin": args.begin, "runtime": args.runtime_factor, "load": args.load, "weights": args.weights}
    given = {name: value for name, value in asked.items() if value is not None}
    # Who is told to leave saves all its work, so checkpoints before that matter only where hosts break.
    checkpoint_ms = args.checkpoint or (CHECKPOINT_MS if args.mtbf_days else 0)
    wishes = Wishes(is_apart=True, checkpoint_ms=checkpoint_ms, **given)
    return recorded, prepare(recorded, hosts=hosts, gpus_per_host=gpus, limit=args.limit or 0, wishes=wishes)
