"""The page of a comparison: policies side by side, then one run of each in time."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlease.figures.wording import rough
from fairlease.simulator.comparison import shown, span
from fairlease.simulator.page.paper import Html, figure, folded, joined, section, sheet, table, tag
from fairlease.simulator.page.plots import Bar, Line, bars, curves, legend, patterns
from fairlease.simulator.page.sections import (
    ORDER,
    fulfilment,
    hosts,
    losses,
    meanings,
    rests_on,
    span_of,
    waits,
)
from fairlease.simulator.page.words import FIGURES, SENTENCES, name_of, say
from fairlease_schemas.comparison import Comparison, Range
from fairlease_schemas.series import Series

_COSTS = (
    ("lost", ("gpu_hours.lost_stopped", "gpu_hours.lost_failed", "gpu_hours.lost_restart", "gpu_hours.lost_abandoned")),
    ("evictions", ("preemption.count", "preemption.turns", "preemption.loops", "preemption.window_breaks")),
    ("promises", ("promises.made", "promises.kept", "promises.earlier", "promises.voided", "promises.broken")),
)
_BUDGETS = "fulfilment.by_budget."


class Run(NamedTuple):
    """A report with its series, and what it is called on the page."""

    name: str
    report: Mapping[str, Any]
    series: Series


def comparison_page(found: Comparison, reports: Sequence[Mapping[str, Any]], lang: str) -> str:
    """The page of these policies; the first run of each is shown in time."""
    runs = [Run(one["policy"], one, msgspec.convert(one["series"], Series)) for one in reports]
    lead = say(
        "comparison-lead",
        lang,
        hosts=found.hosts,
        gpus=found.gpus,
        length=span_of(found.days),
        count=len(found.seeds),
    )
    note = say("over-seeds", lang) if len(found.seeds) > 1 else ""
    return sheet(
        say("comparison", lang, workload=found.workload),
        [lead, *_warnings(found, lang)],
        [patterns(), *side_by_side(found.policies, runs, lang, note), *in_time(runs, lang)],
        rests_on(reports[0]["rules"] if reports else (), found.workload_digest, found.digest, lang),
        lang,
    )


def side_by_side(
    policies: Mapping[str, Mapping[str, Range]], runs: Sequence[Run], lang: str, note: str = ""
) -> list[Html]:
    """Figures, waits, fulfilment and costs of each, beside those of the others; `note` ends the captions."""
    return [
        section(
            say("in-short", lang),
            _table(policies, list(FIGURES), lang, is_named=True),
            meanings(lang),
            _all(policies, lang),
        ),
        _waits(policies, runs, lang, note),
        _budgets(policies, lang, note),
        _costs(policies, lang, note),
    ]


def told(name: str, found: Range | None) -> str:
    """A figure over the seeds: the median, and the range where it is not one value."""
    if found is None or found.median is None:
        return shown(name, None)
    median = shown(name, found.median)
    least, most = shown(name, found.min), shown(name, found.max)
    return median if least == most else f"{median} ({span(least, most)})"


def _warnings(found: Comparison, lang: str) -> list[str]:
    told_of = []
    if found.missing:
        runs = ", ".join(f"{one.policy} {one.seed} ({one.why})" for one in found.missing)
        told_of.append(say("missing", lang, runs=runs))
    if found.missed:
        told_of.append(say("missed", lang, figures=", ".join(found.missed)))
    return told_of


def _table(policies: Mapping[str, Mapping[str, Range]], names: Sequence[str], lang: str, *, is_named: bool) -> Html:
    rows = (
        (FIGURES[name][lang] if is_named else name, *(told(name, figures.get(name)) for figures in policies.values()))
        for name in names
    )
    caption = say("first-table" if is_named else "figures-table", lang)
    return table(caption, [say("figure", lang), *policies], rows)


def _all(policies: Mapping[str, Mapping[str, Range]], lang: str) -> Html:
    names = list(dict.fromkeys(name for figures in policies.values() for name in figures))
    return folded(say("figures-table", lang), _table(policies, names, lang, is_named=False))


def _waits(policies: Mapping[str, Mapping[str, Range]], runs: Sequence[Run], lang: str, note: str) -> Html:
    """A picture for each class, in which each policy is a line; every point in a table."""
    pictures, tables = [], []
    for name in ORDER:
        lines = [_median_line(policy, name, runs) for policy in policies]
        if not any(line.wait_ms for line in lines):
            continue
        title = name_of("wait", name, lang)
        pictures.append(tag("div", tag("h3", title), curves(lines, "low")))
        rows = (
            (f"{permille / 10:g} %", *(_point(line, number) for line in lines))
            for number, permille in enumerate(lines[0].permille)
        )
        tables.append(table(f"{say('waits-all', lang)}: {title}", [say("of-jobs", lang), *policies], rows))
    caption = f"{say('waits-by-class', lang)} {say('waits-caption', lang)} {note}"
    return section(
        say("waits", lang),
        figure(caption, legend(policies), tag("div", *pictures, class_="few")),
        folded(say("waits-all", lang), *tables),
    )


def _point(line: Line, number: int) -> str:
    return rough(line.wait_ms[number] / 1000 if line.wait_ms else None)


def _median_line(policy: str, name: str, runs: Sequence[Run]) -> Line:
    """At each point the median over the policy's runs that have such jobs."""
    permille = runs[0].series.waits.permille if runs else ()
    found = [run.series.waits.by_class.get(name) for run in runs if run.name == policy]
    points = [curve.wait_ms for curve in found if curve is not None and curve.wait_ms]
    columns = zip(*points, strict=True)
    return Line(policy, permille, tuple(sorted(column)[(len(points) + 1) // 2 - 1] for column in columns))


def _budgets(policies: Mapping[str, Mapping[str, Range]], lang: str, note: str) -> Html:
    names = dict.fromkeys(name for figures in policies.values() for name in figures if name.startswith(_BUDGETS))
    few = (tag("div", tag("h3", name.removeprefix(_BUDGETS)), bars(_bars(name, policies), 1)) for name in names)
    caption = f"{say('per-budget-caption', lang)} {note}"
    return section(say("per-budget", lang), figure(caption, tag("div", *few, class_="few")))


def _costs(policies: Mapping[str, Mapping[str, Range]], lang: str, note: str) -> Html:
    parts = []
    for group, names in _COSTS:
        few = (tag("div", tag("h4", _cost_name(name, lang)), bars(_bars(name, policies))) for name in names)
        parts.append(joined((tag("h3", say(group, lang)), tag("div", *few, class_="few"))))
    return section(say("costs", lang), figure(f"{say('costs-caption', lang)} {note}", *parts))


def _cost_name(name: str, lang: str) -> str:
    return SENTENCES[f"cost.{name}"][lang]


def _bars(name: str, policies: Mapping[str, Mapping[str, Range]]) -> list[Bar]:
    rows = []
    for policy, figures in policies.items():
        found = figures.get(name)
        if found is not None and found.median is not None and found.min is not None and found.max is not None:
            rows.append(Bar(policy, found.median, found.min, found.max, told(name, found)))
        else:
            rows.append(Bar(policy, 0, 0, 0, told(name, None)))
    return rows


def in_time(runs: Sequence[Run], lang: str) -> list[Html]:
    """The first run of each policy, folded away: as much again as the page of a simulation."""
    firsts = {run.name: run for run in reversed(runs)}
    parts = []
    for run in (firsts[name] for name in dict.fromkeys(run.name for run in runs)):
        title = _run_title(run, lang)
        lead = f"{run.name}: "
        parts.append(
            folded(
                title,
                waits(run.report, run.series, lang, lead),
                fulfilment(run.report, run.series, lang, lead),
                hosts(run.series, lang, lead),
                losses(run.series, lang, lead),
            )
        )
    return parts


def _run_title(run: Run, lang: str) -> str:
    seed = run.report["seed"]
    key = "one-run" if seed is not None else "one-log"
    return say(key, lang, policy=run.name, seed=str(seed))
