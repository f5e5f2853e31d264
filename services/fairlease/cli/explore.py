"""`fairlease explore`: a grid over the numbers of `budget-window`, and the points that no other beats.

All points get the first seed, then all the second: whatever ends it early, what is known is a fair table. With `--keep`
every run is on disk as it ends, and the same command goes on from there.
"""

import argparse
from contextlib import closing

import msgspec

from fairlease.cli.exits import CONTRACT, FAILED, INTERRUPTED, LATER, OK, USAGE, CommandError
from fairlease.cli.explore_asked import Asked, check_size, exploration_asked, points_asked
from fairlease.cli.explore_runs import Found, Nowhere, played_points
from fairlease.cli.explore_table import name_of, table_of
from fairlease.cli.output import Output, output_of, print_data, print_text
from fairlease.simulator.code import code_digest
from fairlease.simulator.exploration import explored
from fairlease.simulator.kept import Kept, KeptBusy, KeptWrong
from fairlease.simulator.lab_numbers import lab_numbers
from fairlease_schemas.comparison import Exploration


def run(args: argparse.Namespace) -> int:
    """0 with all figures; 1 with a run that has none, or limits that no point keeps; CommandError for no figures."""
    output = output_of(args)
    _check(args)
    asked = exploration_asked(args)
    points = points_asked(args.grid, args.sample, args.sample_seed, lab_numbers(asked.setting.hosts))
    code = code_digest()
    with closing(_kept(args, asked, code)) as kept:
        points = points or list(kept.points.values())
        check_size(points, args.seeds)
        found = played_points(args, points, asked, kept, code, output)
    if not found.runs:
        raise _nothing(args, found)
    told = explored(asked.frame, points, args.seeds, found.runs, found.missing, aims=asked.aims, limits=asked.limits)
    _tell(told, asked, output)
    if found.full:
        raise CommandError(FAILED, found.full, way_out="the answer on standard output is whole; make room, and go on")
    if not found.is_whole:
        return INTERRUPTED
    return FAILED if found.missing or all(one.missed for one in told.points) else OK


def _check(args: argparse.Namespace) -> None:
    for option, is_given in (("--any-code", args.any_code), ("--show", args.show)):
        if is_given and args.keep is None:
            raise CommandError(USAGE, f"{option}: is of a file, and none is named", way_out="add --keep FILE")


def _kept(args: argparse.Namespace, asked: Asked, code: str) -> Kept | Nowhere:
    """The file of runs; CommandError for one that cannot be taken up, and 75 while another exploration has it."""
    if args.keep is None:
        return Nowhere()
    try:
        return Kept(args.keep, asked.setting, code, asked.figures(), is_any_code=args.any_code, is_shown=args.show)
    except KeptWrong as error:
        raise CommandError(CONTRACT, f"--keep {args.keep}: {error}", way_out=error.way_out) from error
    except KeptBusy as error:
        text = f"--keep {args.keep}: another exploration has this file"
        way_out = "wait for its end, look at what it has with --show, or name another file"
        raise CommandError(LATER, text, way_out=way_out) from error
    except OSError as error:
        text = f"--keep {args.keep}: {error.strerror or error}"
        raise CommandError(USAGE, text, way_out="name a file in a folder of yours") from error


def _nothing(args: argparse.Namespace, found: Found) -> CommandError:
    if not found.missing:
        way_out = "leave --show out to play them, or name the seeds that it has"
        return CommandError(FAILED, f"--keep {args.keep}: has no run of these points and seeds", way_out=way_out)
    first = found.missing[0]
    text = f"no run came to its end: seed {first.seed} of point {first.policy[:12]}: {first.why}"
    return CommandError(FAILED if found.is_whole else INTERRUPTED, text)


def _tell(told: Exploration, asked: Asked, output: Output) -> None:
    if output.form in ("table", "wide"):
        print_text(table_of(told, asked.limits, output.style))
    else:
        print_data(output.form, msgspec.json.encode(told), [name_of(one.numbers) for one in told.points])
