"""`fairlease compare`: policies x seeds over all cores, the figures side by side.

Everything that can be wrong is looked at before a run begins. A run that ends without figures, and an interruption,
leave what is known: it is told with what is missing, and the exit code says that it is not all.
"""

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

import msgspec

from fairlease.cli.exits import CONTRACT, FAILED, INTERRUPTED, OK, USAGE, CommandError
from fairlease.cli.output import Output, output_of, print_data, print_text
from fairlease.cli.table import Column, Style, cell_width, table
from fairlease.cli.toml_file import toml_of
from fairlease.cli.wording import count, length
from fairlease.core.words import about
from fairlease.simulator.comparison import Limit, bounds_told, compared, shown, span
from fairlease.simulator.crew import Play, played
from fairlease.simulator.page.comparison import comparison_page
from fairlease.simulator.page.file import problem_of_place, put
from fairlease.simulator.page.words import FIGURES
from fairlease.simulator.plays import play_lab
from fairlease.simulator.policies import POLICIES
from fairlease.simulator.scenario import Scenario, must
from fairlease.simulator.workload_file import LAB_1024, WorkloadWrong, file_of, scenario_of
from fairlease_schemas.comparison import Comparison, Range, Unplayed
from fairlease_schemas.units import DAY_MS

Data = dict[str, Any]

_BAR: Final = 24
_CELL: Final = 13
_STOPPED: Final = "stopped before its end"
_LIMITS: Final = 'a line is a figure and its limits: "fulfilment.mean" = { least = 0.98 }, or most, or both'


def run(args: argparse.Namespace) -> int:
    """0 with all figures; 1 with a figure missed or a run that has none; CommandError when nothing is known."""
    output = output_of(args)
    limits = limits_of(args.must)
    _check(args)
    runs = [(policy, seed) for policy in args.policies for seed in args.seeds]
    found_by, why, is_whole = all_played([_play(args, *one) for one in runs], workers_of(args.workers), output)
    reports = [found_by[number] for number in sorted(found_by)]
    missing = [
        Unplayed(policy=policy, seed=seed, why=why[number])
        for number, (policy, seed) in enumerate(runs)
        if number not in found_by
    ]
    if not reports:
        raise CommandError(
            INTERRUPTED if not is_whole else FAILED,
            f"no run came to its end: {missing[0].policy}, seed {missing[0].seed}: {missing[0].why}",
        )
    found = compared(args.policies, reports, missing, limits, _frame(args, reports[0]))
    if output.form in ("table", "wide"):
        print_text(table_of(found, limits, output.style, args.lang))
    else:
        print_data(output.form, msgspec.json.encode(found), found.policies)
    if args.html:
        write_page(args.html, comparison_page(found, reports, args.lang), output)
    if not is_whole:
        return INTERRUPTED
    return FAILED if found.missed or missing else OK


def _check(args: argparse.Namespace) -> None:
    """CommandError for whatever no run could mend."""
    check_policy("--policies", args.policies)
    check_hosts(args.hosts, _scenario(args.workload))
    if problem := problem_of_place(args.html, args.must, args.workload):
        raise CommandError(USAGE, problem)


def check_policy(option: str, policies: Sequence[str]) -> None:
    """CommandError for a policy that nobody knows."""
    unknown = [policy for policy in policies if policy not in POLICIES]
    if unknown:
        known = ", ".join(POLICIES)
        raise CommandError(USAGE, f"{option}: {unknown[0]!r} is not a policy", way_out=f"the policies are {known}")


def check_hosts(hosts: tuple[int, int] | None, scenario: Scenario) -> None:
    """CommandError for hosts that are not those of the workload."""
    gpus = scenario.cluster.gpus_per_host
    if hosts and hosts[1] != gpus:
        text = f"--hosts {hosts[0]}x{hosts[1]}: the workload is of hosts with {gpus} GPUs"
        raise CommandError(USAGE, text, way_out=f"write {hosts[0]}x{gpus}")


def _scenario(workload: str) -> Scenario:
    try:
        return scenario_of(file_of(workload))[0]
    except WorkloadWrong as error:
        raise CommandError(CONTRACT, f"--workload {workload} cannot be simulated\n{error}") from error
    except OSError as error:
        way_out = "name lab-1024, or a file in its form that can be read"
        raise CommandError(CONTRACT, f"--workload {workload}: {error.strerror or error}", way_out=way_out) from error


def write_page(path: str, page: str, output: Output) -> None:
    """Write the page, behind the answer: a disk that is full must not cost hours of play. People are told."""
    try:
        put(path, page)
    except OSError as error:
        way_out = "the answer on standard output is whole; play it again for a page"
        raise CommandError(FAILED, f"--html {path}: {error}", way_out=way_out) from error
    if not output.is_data and not output.is_quiet:
        print_text(f"\nthe page is written: {path}\n")


def limits_of(path: str | None) -> dict[str, Limit]:
    """What figures have to be, by `--must`; CommandError 65 for a file that does not say it."""
    if path is None:
        return {}
    try:
        told = tomllib.loads(must()) if path == LAB_1024 else toml_of("--must", path, _LIMITS)
        return msgspec.convert(told, dict[str, Limit])
    except msgspec.ValidationError as error:
        raise CommandError(CONTRACT, f"--must {path}: {error}", way_out=_LIMITS) from error


def workers_of(asked: int | None) -> int:
    """As many as were asked for, else one for each core that this process may use."""
    return asked or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [None])


def _play(args: argparse.Namespace, policy: str, seed: int) -> Play:
    return partial(
        play_lab,
        policy=policy,
        seed=seed,
        hosts=args.hosts[0] if args.hosts else 0,
        measured_ms=round(args.days * DAY_MS) if args.days else None,
        warm_up_ms=round(args.warm_up * DAY_MS) if args.warm_up else None,
        file=file_of(args.workload),
    )


def all_played(plays: Sequence[Play], workers: int, output: Output) -> tuple[dict[int, Data], dict[int, str], bool]:
    """(what each run told by its number, why there is nothing of the others, whether nobody interrupted)."""
    found: dict[int, Data] = {}
    why = dict.fromkeys(range(len(plays)), _STOPPED)
    is_whole = True
    bar = ProgressBar(len(plays), output)
    try:
        with closing(played(plays, workers, lambda permille: bar.show(permille, len(found)))) as results:
            for result in results:
                if result.report is not None:
                    found[result.number] = result.report
                why[result.number] = result.why
    except KeyboardInterrupt:
        is_whole = False
    bar.clear()
    return found, why, is_whole


class ProgressBar:
    """How far it is, on a terminal's standard error alone."""

    def __init__(self, runs: int, output: Output) -> None:
        self._runs = runs
        self._is_shown = sys.stderr.isatty() and not output.is_quiet and not output.is_data
        self._began_s = time.monotonic()

    def show(self, permille: int, done: int) -> None:
        """So many thousandths of a run are done over all runs, and so many runs."""
        if not self._is_shown:
            return
        whole = 1000 * self._runs
        full = permille * _BAR // whole
        gone_s = time.monotonic() - self._began_s
        left = f", {about(round(gone_s * (whole - permille) / permille) * 1000)} left" if permille else ""
        bar = "#" * full + "-" * (_BAR - full)
        print(
            f"\r[{bar}] {permille * 100 // whole} %, {done} of {self._runs} runs{left}\x1b[K", end="", file=sys.stderr
        )
        sys.stderr.flush()

    def clear(self) -> None:
        """Nothing is under way any more."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _frame(args: argparse.Namespace, report: Data) -> Data:
    return {
        "workload": args.workload,
        "workload_digest": report["workload_digest"],
        "hosts": report["hosts"],
        "gpus": report["gpus"],
        "days": report["days"],
        "seeds": args.seeds,
    }


def table_of(found: Comparison, limits: Mapping[str, Limit], style: Style, lang: str) -> str:
    """The figures that are told first, medians with their ranges below; as many policies side by side as fit.

    Then what has no figures, and what misses its limit.
    """
    names = {name: words[lang] for name, words in FIGURES.items()}
    room = style.width - max(map(cell_width, names.values()))
    blocks: list[list[str]] = [[]]
    left = room
    for policy in found.policies:
        needed = 2 + max(cell_width(policy), _CELL)
        if blocks[-1] and left < needed:
            blocks.append([])
            left = room
        blocks[-1].append(policy)
        left -= needed
    parts = [_block({policy: found.policies[policy] for policy in block}, names, style) for block in blocks]
    seeds = f"{'seed' if len(found.seeds) == 1 else 'seeds'} {', '.join(map(str, found.seeds))}"
    where = f"{length(round(found.days * DAY_MS))} on {count(found.hosts, 'host')}"
    medians = "medians over the seeds, below them the least and the most\n" if len(found.seeds) > 1 else ""
    runs = f"{medians}{count(len(found.runs), 'run')}, {seeds}, {where}"
    told = [*parts, f"{runs}\nworkload {found.workload_digest}\nresult   {found.digest}\n"]
    told += ["".join(f"no figures: {one.policy}, seed {one.seed}: {one.why}\n" for one in found.missing)]
    told += ["".join(_missed(found, name, limits[name], names.get(name, "")) for name in found.missed)]
    return "\n".join(part for part in told if part)


def _missed(found: Comparison, name: str, limit: Limit, title: str) -> str:
    """A figure of the first policy that misses its limit: by what name, what it is, and what it had to be."""
    policy, figures = next(iter(found.policies.items()))
    must = bounds_told(limit, partial(shown, name))
    value = shown(name, figures[name].median) if name in figures else "absent"
    return f"missed: {name}{f' ({title})' if title else ''} of {policy} is {value}, must be {must}\n"


def _block(policies: dict[str, dict[str, Range]], names: dict[str, str], style: Style) -> str:
    columns = [Column("FIGURE"), *(Column(policy, is_number=True) for policy in policies)]
    rows: list[list[str]] = []
    for name, title in names.items():
        ranges = [figures.get(name) for figures in policies.values()]
        rows.append([title, *(shown(name, one.median if one else None) for one in ranges)])
        told = [_range(name, one) for one in ranges]
        if any(told):
            rows.append(["", *told])
    return table(columns, rows, style)


def _range(name: str, found: Range | None) -> str:
    """From the least to the most; empty where nobody could tell them apart."""
    if found is None or found.min is None:
        return ""
    least, most = shown(name, found.min), shown(name, found.max)
    return "" if least == most else span(least, most)
