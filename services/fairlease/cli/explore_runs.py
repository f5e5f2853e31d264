"""The runs of an exploration: those that are kept already, and the others, each kept as it ends."""

import argparse
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairlease.cli.compare import ProgressBar, workers_of
from fairlease.cli.explore_asked import Asked
from fairlease.cli.output import Output, refused, say
from fairlease.cli.wording import count
from fairlease.simulator.code import code_digest
from fairlease.simulator.comparison import figures_of
from fairlease.simulator.crew import Play, Tell, Wrong, played
from fairlease.simulator.exploration import Run, digest_of_policy, run_of, whole_of
from fairlease.simulator.kept import Kept, Setting
from fairlease.simulator.plays import play_lab
from fairlease.simulator.policies import BUDGET_WINDOW
from fairlease_schemas.comparison import ExploredRun, Unplayed
from fairlease_schemas.policy import Policy

_STOPPED: Final = "stopped before its end"
_CHANGED: Final = "was changed while it was explored: start again"


class Found(NamedTuple):
    """Every run that is known, those without figures, whether nothing ended it early, and why no more could be kept."""

    runs: Collection[Run]
    missing: Sequence[Unplayed]
    is_whole: bool
    full: str


class Nowhere:
    """What stands in the place of a file where none is kept."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, int], Run] = {}
        self.points: dict[str, Policy] = {}

    def keep(self, run: ExploredRun) -> None:
        """Nothing is on disk."""

    def close(self) -> None:
        """Nothing was open."""


def played_points(
    args: argparse.Namespace,
    points: Sequence[Policy],
    asked: Asked,
    kept: Kept | Nowhere,
    code: str,
    output: Output,
) -> Found:
    """Every run of these points: all points with one seed before the next. With `--show` what is kept, and no more."""
    of = {digest_of_policy(point): point for point in points}
    wanted = [(digest, seed) for seed in args.seeds for digest in of]
    known = {one: kept.runs[one] for one in wanted if one in kept.runs}
    if args.show:
        return Found(list(known.values()), (), is_whole=True, full="")
    left = [one for one in wanted if one not in known]
    if known:
        facts = {"kind": "TakenUp", "file": args.keep, "runs": len(known), "left": len(left)}
        say(output, f"{args.keep}: {count(len(known), 'run')} taken up, {len(left)} left to play", facts)
    play = partial(play_point, setting=asked.setting, file=asked.file, code="" if args.any_code else code)
    plays: list[Play] = [partial(play, numbers=of[digest], seed=seed) for digest, seed in left]
    why = dict.fromkeys(range(len(left)), _STOPPED)
    is_whole, full, done = True, "", 0
    bar = ProgressBar(len(left), output)
    try:
        with closing(played(plays, workers_of(args.workers), lambda permille: bar.show(permille, done))) as results:
            for result in results:
                done += 1
                why[result.number] = result.why
                if result.report is None:
                    continue
                told: ExploredRun = result.report["run"]
                known[left[result.number]] = run_of(told, asked.figures())
                try:
                    kept.keep(told)
                except OSError as error:
                    is_whole, full = False, f"--keep {args.keep}: {refused(error)}"
                    break
    except KeyboardInterrupt:
        is_whole = False
    bar.clear()
    missing = [
        Unplayed(policy=digest, seed=seed, why=why[number])
        for number, (digest, seed) in enumerate(left)
        if (digest, seed) not in known
    ]
    return Found(list(known.values()), missing, is_whole, full)


def play_point(
    tell: Tell, *, numbers: Policy, seed: int, setting: Setting, file: Path | None, code: str
) -> dict[str, Any]:
    """`run`: one run as the file keeps it; Wrong when it cannot be played, or the workload or the rules are others now.

    With `code` empty the rules may be whatever they are.
    """
    found = code_digest()
    if code and found != code:
        raise Wrong(f"the code of this program {_CHANGED}")
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
        raise Wrong(f"the file of the workload {_CHANGED}")
    told = ExploredRun(
        **setting._asdict(),
        code=found,
        numbers=whole_of(numbers),
        policy_digest=digest_of_policy(numbers),
        seed=seed,
        digest=report["digest"],
        figures=figures_of(report),
    )
    return {"run": told}
