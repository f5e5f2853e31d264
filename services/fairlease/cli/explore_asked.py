"""What `fairlease explore` is asked for: points, workload, aims and limits, all looked at before a run begins.

Also the names of figures, for which a moment of the workload is played: a name that no report has would be found out
after hours.
"""

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairlease.cli.compare import limits_of
from fairlease.cli.exits import CONTRACT, FAILED, USAGE, CommandError
from fairlease.cli.explore_table import name_of
from fairlease.cli.numbers import judge, number_of
from fairlease.cli.wording import count
from fairlease.simulator.asked import hosts_problem
from fairlease.simulator.comparison import Limit, figures_of, is_counted
from fairlease.simulator.crew import Wrong
from fairlease.simulator.exploration import AIMS, Frame, drawn, points_of, size_of
from fairlease.simulator.kept import Setting
from fairlease.simulator.plays import play_lab
from fairlease.simulator.policies import BUDGET_WINDOW
from fairlease.simulator.workload_file import WorkloadWrong, file_of, scenario_of
from fairlease_schemas.comparison import Aim
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import DAY_MS

_MAX_POINTS: Final = 4_096
_MAX_GRID: Final = 10**12
_MAX_RUNS: Final = 40_000


class Asked(NamedTuple):
    """What is explored: the runs' setting and frame, the workload's file, and what their figures are held against."""

    setting: Setting
    frame: Frame
    file: Path | None
    aims: Mapping[str, Aim]
    limits: Mapping[str, Limit]

    def figures(self) -> frozenset[str]:
        """The names of the figures that matter."""
        return frozenset((*self.aims, *self.limits))


def points_asked(
    grid: Sequence[tuple[str, tuple[str, ...]]], sample: int | None, seed: int, usual: Policy
) -> list[Policy]:
    """The points of the grid, `usual` in what it leaves open; none where there is no grid.

    CommandError for a number, a value or a size of no use.
    """
    values: dict[str, list[Any]] = {}
    for name, texts in grid:
        if name in values:
            raise CommandError(USAGE, f"--grid {name}: stands twice", way_out="write all its values in one --grid")
        values[name] = list(dict.fromkeys(number_of(name, text) for text in texts))
    if not values:
        if sample is not None:
            raise CommandError(USAGE, "--sample: is of a grid, and there is none", way_out="add --grid NUMBER=A,B")
        return []
    size = size_of(values)
    if min(size, sample or size) > _MAX_POINTS or size > _MAX_GRID:
        text = f"--grid: {size:,} points, and at most {_MAX_POINTS:,} of up to {_MAX_GRID:,} are explored at once"
        raise CommandError(USAGE, text, way_out="take fewer values, or draw some of them with --sample N")
    places = range(size) if sample is None else drawn(size, sample, seed)
    points = points_of(values, usual, places)
    for point in points:
        judge(point, f" ({name_of({name: getattr(point, name) for name in values})})")
    return points


def exploration_asked(args: argparse.Namespace) -> Asked:
    """The workload and what is looked for; CommandError for what no run could mend."""
    try:
        file = file_of(args.workload)
        scenario, digest = scenario_of(file)
        problem = hosts_problem(args)
    except WorkloadWrong as error:
        raise CommandError(CONTRACT, str(error)) from error
    if problem:
        raise CommandError(USAGE, problem)
    hosts = args.hosts[0] if args.hosts else scenario.cluster.hosts
    setting = Setting(
        workload_digest=digest,
        hosts=hosts,
        warm_up_ms=round((args.warm_up or scenario.time.warm_up_days) * DAY_MS),
        measured_ms=round((args.days or scenario.time.measured_days) * DAY_MS),
    )
    if setting.measured_ms < 1:
        raise CommandError(USAGE, f"--days {args.days}: is less than a millisecond", way_out="measure for longer")
    aims = {name: Aim(best=best, step=step) for name, best, step in args.aim} or AIMS
    limits = limits_of(args.must)
    try:
        seen = play_lab(
            lambda _permille: None,
            policy=BUDGET_WINDOW,
            seed=1,
            hosts=hosts,
            measured_ms=1,
            warm_up_ms=1,
            file=file,
        )
    except Wrong as error:
        raise CommandError(FAILED, f"this workload cannot be played: {error}") from error
    _check_names("--aim", aims, figures_of(seen))
    _check_names("--must", limits, figures_of(seen))
    days = round(setting.measured_ms / DAY_MS, 4)
    frame = Frame(args.workload, digest, hosts, hosts * scenario.cluster.gpus_per_host, days)
    return Asked(setting, frame, file, aims, limits)


def _check_names(option: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known and not is_counted(name):
            text = f"{option} {name[:80]}: no report has such a figure"
            way_out = "`fairlease simulate -o json` has them: keys joined by dots, as wait.all.p90_s"
            raise CommandError(USAGE, text, way_out=way_out)


def check_size(points: Sequence[Policy], seeds: Sequence[int]) -> None:
    """CommandError for no points, and for more runs than one command plays."""
    if not points:
        raise CommandError(USAGE, "there is nothing to explore", way_out="add --grid NUMBER=A,B")
    if len(points) * len(seeds) > _MAX_RUNS:
        text = f"{count(len(points), 'point')} with {count(len(seeds), 'seed')}: at most {_MAX_RUNS:,} runs"
        raise CommandError(USAGE, text, way_out="take fewer seeds, or draw some of the points with --sample N")
