"""A past played again twice, as it was and with a change: what `whatif` and `policy simulate` compare."""

from contextlib import closing
from functools import partial
from typing import Any

from fairlease.cli.compare import ProgressBar, workers_of
from fairlease.cli.exits import FAILED, INTERRUPTED, CommandError
from fairlease.cli.output import Output
from fairlease.simulator.again import Change, play_again
from fairlease.simulator.crew import played
from fairlease.simulator.past import Past


def played_twice(past: Past, change: Change, output: Output) -> tuple[dict[str, Any], dict[str, Any]]:
    """(report without the change, report with it), each played in a process of its own.

    CommandError when one of them comes to no end, and after Ctrl-C.
    """
    plays = [partial(play_again, past=past, change=one) for one in (Change(), change)]
    bar = ProgressBar(len(plays), output)
    reports: dict[int, dict[str, Any]] = {}
    try:
        with closing(played(plays, workers_of(None), lambda permille: bar.show(permille, len(reports)))) as results:
            for result in results:
                if result.report is None:
                    raise CommandError(FAILED, f"the log cannot be played again: {result.why}")
                reports[result.number] = result.report
    except KeyboardInterrupt:
        raise CommandError(INTERRUPTED, "interrupted before both were played to their end") from None
    finally:
        bar.clear()
    return reports[0], reports[1]
