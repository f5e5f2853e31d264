"""`fairlease robust`: a policy in all cases of a suite, each over several seeds, against the suite's limits.

Everything that can be wrong is looked at before a run begins. With `--keep` what each run found stays in a folder,
under the digest of everything that it depends on, the code too: whoever is interrupted, or asks for more seeds, plays
the rest alone.
"""

import argparse
from pathlib import Path
from typing import Final

import msgspec

from fairlease.cli.compare import all_played, check_hosts, check_policy, workers_of
from fairlease.cli.exits import CONTRACT, FAILED, INTERRUPTED, OK, USAGE, CommandError
from fairlease.cli.output import output_of, print_data, print_text
from fairlease.cli.table import Column, Style, table
from fairlease.cli.wording import count, length
from fairlease.simulator.comparison import bounds_told, shown
from fairlease.simulator.page.robustness import over
from fairlease.simulator.robustness import (
    BROKEN,
    GAINS,
    Found,
    Opened,
    Span,
    opened,
    plays_of,
    result,
    runs_of,
    scenarios,
)
from fairlease.simulator.scenario import Scenario
from fairlease.simulator.workload_file import WorkloadWrong, file_of
from fairlease_schemas.robustness import Case, Lacking, Missed, Robustness
from fairlease_schemas.units import DAY_MS

COLUMNS: Final = (
    ("FULFILMENT", "fulfilment.mean"),
    ("LOWEST", "fulfilment.lowest"),
    ("AT 95 %", "fulfilment.at_least_95"),
    ("OCCUPANCY", "occupancy"),
    ("DEBUG P90", "wait.debug.p90_s"),
    ("WAIT P50", "wait.all.p50_s"),
    ("P90", "wait.all.p90_s"),
    ("GANGS P90", "wait.gangs_128.p90_s"),
    ("OVERHEAD", "preemption.overhead"),
)
"""What the table tells of every case, by public names."""
GAINED: Final = tuple(zip(("GAIN", "IN WORK", "BEYOND DUE", "COST TO OTHERS"), GAINS, strict=True))


def run(args: argparse.Namespace) -> int:
    """0 with all limits held; 1 with one missed or a run without figures; CommandError when nothing is known."""
    output = output_of(args)
    check_policy("--policy", (args.policy,))
    of = _opened(args.suite)
    names = _names(of, args.cases)
    found_by = _scenarios(of, names)
    for scenario in found_by.values():
        check_hosts(args.hosts, scenario)
    keep = _folder(args.keep)
    span = Span(
        hosts=args.hosts[0] if args.hosts else 0,
        measured_ms=round(args.days * DAY_MS) if args.days else None,
        warm_up_ms=round(args.warm_up * DAY_MS) if args.warm_up else None,
    )
    runs = runs_of(of, names, args.seeds, span)
    plays = plays_of(of, runs, args.policy, span, keep)
    told, why, is_whole = all_played(plays, workers_of(args.workers), output)
    if not told:
        raise CommandError(INTERRUPTED if not is_whole else FAILED, f"no run came to its end: {why[0]}")
    found = Found({runs[number]: one for number, one in told.items()}, {runs[number]: why[number] for number in why})
    days = _days(found_by[names[0]], args)
    frame = {"policy": args.policy, "hosts": span.hosts, **days}
    robustness = result(of, names, args.seeds, span, found, frame)
    if output.form in ("table", "wide"):
        print_text(table_of(robustness, output.style))
    else:
        print_data(output.form, msgspec.json.encode(robustness), robustness.cases)
    if not is_whole:
        return INTERRUPTED
    return FAILED if robustness.missed or robustness.missing else OK


def _opened(suite: str) -> Opened:
    try:
        return opened(file_of(suite))
    except WorkloadWrong as error:
        raise CommandError(CONTRACT, f"--suite {suite} cannot be played\n{error}") from error
    except OSError as error:
        way_out = "name lab-1024, or a file in the form of lab-1024-robust.toml that can be read"
        raise CommandError(CONTRACT, f"--suite {suite}: {error.strerror or error}", way_out=way_out) from error


def _names(of: Opened, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    unknown = [name for name in asked or () if name not in of.suite.case]
    if unknown:
        way_out = f"the cases are {', '.join(of.suite.case)}"
        raise CommandError(USAGE, f"--cases: {unknown[0][:60]!r} is no case of {of.name}", way_out=way_out)
    return asked or tuple(of.suite.case)


def _scenarios(of: Opened, names: tuple[str, ...]) -> dict[str, Scenario]:
    try:
        return scenarios(of, names)
    except WorkloadWrong as error:
        raise CommandError(CONTRACT, f"a case of {of.name} cannot be simulated\n{error}") from error
    except OSError as error:
        way_out = "the suite's `workload` is lab-1024, or a file beside it"
        raise CommandError(CONTRACT, f"{of.workload}: {error.strerror or error}", way_out=way_out) from error


def _folder(path: str | None) -> Path | None:
    if path is None:
        return None
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        way_out = "name a folder that you may write to"
        raise CommandError(USAGE, f"--keep {path}: {error.strerror or error}", way_out=way_out) from error
    return Path(path)


def _days(scenario: Scenario, args: argparse.Namespace) -> dict[str, float]:
    time = scenario.time
    return {"days": args.days or time.measured_days, "warm_up_days": args.warm_up or time.warm_up_days}


def table_of(found: Robustness, style: Style) -> str:
    """A line for each case, medians over the seeds, then the games, then what is missed or missing."""
    columns = [Column("CASE"), Column("GPUS", is_number=True), *(Column(title, is_number=True) for title, _ in COLUMNS)]
    columns.append(Column("BROKEN", is_number=True))
    rows = [
        [name, f"{case.gpus:,}", *(told(case, figure) for _, figure in COLUMNS), broken(case)]
        for name, case in found.cases.items()
    ]
    parts = [table(columns, rows, style)]
    games = {name: case for name, case in found.cases.items() if GAINED[0][1] in case.figures}
    if games:
        titles = [Column("GAME"), *(Column(title, is_number=True) for title, _ in GAINED), Column("OVER THE SEEDS")]
        lines = [
            [name, *(told(case, figure) for _, figure in GAINED), over(case.figures[GAINED[0][1]], GAINED[0][1])]
            for name, case in games.items()
        ]
        parts.append(table(titles, lines, style))
    seeds = f"{'seed' if len(found.seeds) == 1 else 'seeds'} {', '.join(map(str, found.seeds))}"
    where = f"{length(round(found.days * DAY_MS))} after {length(round(found.warm_up_days * DAY_MS))}"
    parts.append(f"{found.policy}, {count(len(found.cases), 'case')}, {seeds}, {where}\nresult {found.digest}\n")
    faults = [f"no figures: {_lacking(one)}\n" for one in found.missing]
    faults += [f"missed: {_missed(one)}\n" for one in found.missed]
    return "\n".join([*parts, *(["".join(faults)] if faults else [])])


def told(case: Case, figure: str) -> str:
    """The median of a figure, in words."""
    return shown(figure, case.figures[figure].median)


def broken(case: Case) -> str:
    """Windows, loops and promises that were broken, the most of any seed."""
    return " ".join(f"{case.figures[name].max or 0:.0f}" for name in BROKEN)


def _lacking(one: Lacking) -> str:
    return f"{one.case}{' without its game' if one.is_honest else ''}, seed {one.seed}: {one.why}"


def _missed(one: Missed) -> str:
    value = "absent" if one.value is None else f"{one.value:g}"
    seed = "the median" if one.seed is None else f"seed {one.seed}"
    return f"{one.case}: {one.figure} of {seed} is {value}, must be {bounds_told(one, '{:g}'.format)}"
