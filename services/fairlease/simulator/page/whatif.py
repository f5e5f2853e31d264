"""The page of a what-if: what was, the same played again, and what would have been, side by side and in time."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlease.figures.wording import rough
from fairlease.simulator.page.comparison import Run, in_time, side_by_side
from fairlease.simulator.page.paper import Html, section, sheet, table, tag
from fairlease.simulator.page.plots import patterns
from fairlease.simulator.page.sections import rests_on, span_of
from fairlease.simulator.page.words import say
from fairlease_schemas.comparison import Range, WhatIf
from fairlease_schemas.series import Series

_COLUMNS = ("was", "again", "would")


def whatif_page(
    found: WhatIf, was: Mapping[str, Any], again: Mapping[str, Any], would: Mapping[str, Any], lang: str
) -> str:
    """The page, in `en` or `zh`; the three reports with their series."""
    names = {column: say(column, lang) for column in _COLUMNS}
    policies = {
        title: {name: _single(getattr(one, column)) for name, one in found.figures.items()}
        for column, title in names.items()
    }
    runs = [
        Run(title, report, msgspec.convert(report["series"], Series))
        for title, report in zip(names.values(), (was, again, would), strict=True)
    ]
    changed = ", ".join(f"{key}={value}" for key, value in found.change.items())
    jobs = found.earlier + found.later + found.same
    lead = say("whatif-lead", lang, jobs=jobs, length=span_of(found.days), change=changed)
    rules = [msgspec.to_builtins(rule) for rule in found.rules]
    return sheet(
        say("whatif", lang),
        [lead, say("whatif-reading", lang)],
        [patterns(), *side_by_side(policies, runs, lang), _jobs(found, lang), *in_time(runs, lang)],
        rests_on(rules, found.digest, would["digest"], lang),
        lang,
    )


def _single(value: float | None) -> Range:
    return Range(median=value, min=value, max=value)


def _jobs(found: WhatIf, lang: str) -> Html:
    """The jobs whose wait is another one, the largest change first."""
    lead = say("changed-lead", lang, earlier=found.earlier, later=found.later, same=found.same)
    if not found.jobs:
        return section(say("changed-jobs", lang), tag("p", lead))
    head = [say(key, lang) for key in ("job", "budget", *_COLUMNS)]
    rows = (
        (one.job, one.budget, *(_wait(value) for value in (one.was_ms, one.again_ms, one.would_ms)))
        for one in found.jobs
    )
    return section(say("changed-jobs", lang), tag("p", lead), table(say("changed-table", lang), head, rows))


def _wait(wait_ms: int | None) -> str:
    return rough(None if wait_ms is None else wait_ms / 1000)
