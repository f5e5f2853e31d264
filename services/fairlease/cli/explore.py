"""`fairlease explore`: a grid over the numbers of `budget-window`, and the points that no other beats.

All points get the first seed, then all the second: whatever ends it early, what is known is a fair table. With `--keep`
every run is on disk as it ends, and the same command goes on from there.
"""

import argparse
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fairlease.cli.compare import ProgressBar, play_lab, workers_of
from fairlease.cli.exits import CONTRACT, FAILED, INTERRUPTED, OK, USAGE, CommandError
from fairlease.cli.explore_asked import Asked, check_size, exploration_asked, points_asked
from fairlease.cli.explore_table import name_of, table_of
from fairlease.cli.output import Output, output_of, print_data, print_text, refused, say
from fairlease.cli.wording import count
from fairlease.simulator.code import code_digest
from fairlease.simulator.comparison import figures_of
from fairlease.simulator.crew import Play, Tell, Wrong, played
from fairlease.simulator.exploration import Run, digest_of_policy, explored, plain_of
from fairlease.simulator.kept import Kept, KeptBusy, KeptWrong, Setting
from fairlease.simulator.policies import BUDGET_WINDOW
from fairlease_schemas.comparison import ExploredRun, Unplayed
from fairlease_schemas.policy import Policy

Data = dict[str, Any]

_STOPPED: Final = "stopped before its end"


class _Found(NamedTuple):
    """Every run that is known, those without figures, whether nothing ended it early, and why no more could be kept."""

    runs: Collection[Run]
    missing: Sequence[Unplayed]
    is_whole: bool
    full: str


def run(args: argparse.Namespace) -> int:
    """0 with all figures; 1 with a run that has none, or limits that no point keeps; CommandError for no figures."""
    output = output_of(args)
    points = points_asked(args.grid, args.sample, args.sample_seed)
    asked = exploration_asked(args)
    code = code_digest()
    with closing(_kept(args, asked, code)) as kept:
        points = points or list(kept.points.values())
        check_size(args, points)
        found = _played(args, points, asked, kept, code, output)
    if not found.runs:
        first = found.missing[0]
        raise CommandError(FAILED if found.is_whole else INTERRUPTED, f"no run came to its end: {_sentence(first)}")
    told = explored(asked.frame, points, args.seeds, found.runs, found.missing, aims=asked.aims, limits=asked.limits)
    if output.form in ("table", "wide"):
        print_text(table_of(told, asked.limits, output.style))
    else:
        print_data(output.form, msgspec.json.encode(told), [name_of(one.numbers) for one in told.points])
    if found.full:
        raise CommandError(FAILED, found.full, way_out="the answer on standard output is whole; make room, and go on")
    if not found.is_whole:
        return INTERRUPTED
    return FAILED if found.missing or all(one.missed for one in told.points) else OK


class _Nowhere:
    """What stands in the place of a file where none is kept."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, int], Run] = {}
        self.points: dict[str, Policy] = {}

    def keep(self, run: ExploredRun) -> None:
        """Nothing is on disk."""

    def close(self) -> None:
        """Nothing was open."""


def _kept(args: argparse.Namespace, asked: Asked, code: str) -> Kept | _Nowhere:
    if args.keep is None:
        if args.any_code:
            raise CommandError(USAGE, "--any-code: is of a file, and none is named", way_out="add --keep FILE")
        return _Nowhere()
    try:
        return Kept(args.keep, asked.setting, "" if args.any_code else code, {*asked.aims, *asked.limits})
    except KeptWrong as error:
        raise CommandError(CONTRACT, f"--keep {args.keep}: {error}", way_out=error.way_out) from error
    except KeptBusy as error:
        text = f"--keep {args.keep}: another exploration has this file"
        raise CommandError(USAGE, text, way_out="wait for its end, or name another file") from error
    except OSError as error:
        text = f"--keep {args.keep}: {error.strerror or error}"
        raise CommandError(USAGE, text, way_out="name a file in a folder of yours") from error


# the runs --------------------------------------------------------------------------------------------
def play_point(tell: Tell, *, numbers: Policy, seed: int, setting: Setting, file: Path | None, code: str) -> Data:
    """One run, as the file keeps it; Wrong when it cannot be played, or the workload or the rules are others by now."""
    found = code_digest()
    if code and found != code:
        raise Wrong("the code of this program was changed while it explored: start again")
    report = play_lab(
        tell,
        policy=BUDGET_WINDOW,
        seed=seed,
        hosts=setting.hosts,
        measured_ms=setting.measured_ms,
        warm_up_ms=setting.warm_up_ms,
        numbers=numbers,
        file=file,
    )
    if report["workload_digest"] != setting.workload_digest:
        raise Wrong("the file of the workload was changed while it was explored: start again")
    told = ExploredRun(
        **setting._asdict(),
        code=found,
        numbers=plain_of(numbers),
        policy_digest=digest_of_policy(numbers),
        seed=seed,
        digest=report["digest"],
        figures=figures_of(report),
    )
    return {"run": told}


def _played(
    args: argparse.Namespace,
    points: Sequence[Policy],
    asked: Asked,
    kept: Kept | _Nowhere,
    code: str,
    output: Output,
) -> _Found:
    """Every run that is not kept already, all points with one seed before the next; each kept as it ends."""
    digests = [digest_of_policy(point) for point in points]
    known = {
        (digest, seed): kept.runs[digest, seed]
        for seed in args.seeds
        for digest in digests
        if (digest, seed) in kept.runs
    }
    left = [(place, seed) for seed in args.seeds for place, digest in enumerate(digests) if (digest, seed) not in known]
    if known:
        say(
            output,
            f"{args.keep}: takes up {count(len(known), 'run')}, {len(left)} left",
            {"kind": "TakenUp", "runs": len(known), "left": len(left)},
        )
    plays: list[Play] = [
        partial(
            play_point,
            numbers=points[place],
            seed=seed,
            setting=asked.setting,
            file=asked.file,
            code="" if args.any_code else code,
        )
        for place, seed in left
    ]
    why = dict.fromkeys(range(len(left)), _STOPPED)
    wanted = {*asked.aims, *asked.limits}
    is_whole, full = True, ""
    bar = ProgressBar(len(left), output)
    done = 0
    try:
        with closing(played(plays, workers_of(args.workers), lambda permille: bar.show(permille, done))) as results:
            for result in results:
                done += 1
                why[result.number] = result.why
                if result.report is None:
                    continue
                told: ExploredRun = result.report["run"]
                kept.keep(told)
                figures = {name: told.figures.get(name) for name in wanted}
                known[told.policy_digest, told.seed] = Run(
                    told.policy_digest, told.seed, told.digest, told.code, figures
                )
    except KeyboardInterrupt:
        is_whole = False
    except OSError as error:
        is_whole, full = False, f"--keep {args.keep}: {refused(error)}"
    bar.clear()
    missing = [
        Unplayed(policy=digests[place], seed=seed, why=why[number])
        for number, (place, seed) in enumerate(left)
        if (digests[place], seed) not in known
    ]
    return _Found(list(known.values()), missing, is_whole, full)


def _sentence(one: Unplayed) -> str:
    return f"seed {one.seed} of {one.policy[:12]}: {one.why}"
