"""Sections: the pictures of one run, each with all of its numbers in a table beside it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fairlease.figures.wording import NOTHING, hours, percent, rough
from fairlease.simulator.comparison import shown
from fairlease.simulator.page.paper import Html, figure, folded, joined, section, table, tag
from fairlease.simulator.page.plots import (
    Line,
    Strip,
    curves,
    host_map,
    legend,
    length_of,
    spans,
    state_legend,
    stretch_names,
    strips,
)
from fairlease.simulator.page.words import FIGURES, FIRST, MEANINGS, name_of, say
from fairlease.simulator.rows import STATES
from fairlease_schemas.series import BudgetCourse, HostRow, Series, Waits
from fairlease_schemas.units import HOUR_MS

Data = Mapping[str, Any]
ORDER: Final = ("all", "debug", "small", "medium", "large", "gangs_128", "idle")
"""Classes of jobs in the order in which they are drawn."""
_PERMILLE: Final = 1000
_HIGH_PERMILLE: Final = 950
_OUT: Final = ("faulty", "drained", "saving")


def tiles(figures: Mapping[str, float | None], lang: str) -> Html:
    """The figures that are told first."""
    told = (
        tag("li", tag("b", shown(name, figures[name])), tag("span", FIGURES[name][lang]))
        for name in FIRST
        if figures.get(name) is not None
    )
    return tag("ul", *told, class_="short")


def meanings(lang: str) -> Html:
    """What the figures mean."""
    return folded(say("meanings", lang), tag("ul", *(tag("li", words[lang]) for words in MEANINGS)))


def waits(report: Data, series: Series, lang: str, lead: str = "") -> Html:
    """Waits by class: curves, quantiles, every point. `lead` tells the tables of several runs apart."""
    found = {name: curve for name in ORDER if (curve := series.waits.by_class.get(name)) is not None and curve.jobs}
    names = [name_of("wait", name, lang) for name in found]
    lines = [
        Line(name, series.waits.permille, curve.wait_ms) for name, curve in zip(names, found.values(), strict=True)
    ]
    rows = (
        (title, f"{curve.jobs:,}", *(rough(report["wait"][name][f"{key}_s"]) for key in ("p50", "p90", "p99", "mean")))
        for (name, curve), title in zip(found.items(), names, strict=True)
    )
    columns = [say(key, lang) for key in ("class", "jobs", "half", "most", "nearly-all", "mean")]
    return section(
        lead + say("waits", lang),
        figure(say("waits-caption", lang), legend(names), curves(lines, "tall")),
        table(lead + say("waits-table", lang), columns, rows),
        _points(series.waits, found, names, lang, lead),
    )


def _points(told: Waits, found: Iterable[str], names: list[str], lang: str, lead: str) -> Html:
    curves_of = [told.by_class[name].wait_ms for name in found]
    rows = (
        (f"{permille / 10:g} %", *(rough(curve[number] / 1000) for curve in curves_of))
        for number, permille in enumerate(told.permille)
    )
    title = say("waits-all", lang)
    return folded(title, table(lead + title, [say("of-jobs", lang), *names], rows))


def fulfilment(report: Data, series: Series, lang: str, lead: str = "") -> Html:
    """What each budget got of its due in time, and over all of it."""
    told = report["fulfilment"]
    parts = {name: fulfilled(course) for name, course in series.budgets.items()}
    whole = {name: told["by_budget"].get(name) for name in parts}
    rows = [Strip(name, percent(whole[name]), heights) for name, heights in parts.items()]
    table_rows = (
        (name, hours(told["held_gpu_h"].get(name, 0.0)), hours(told["due_gpu_h"].get(name, 0.0)), percent(whole[name]))
        for name in parts
    )
    columns = [say(key, lang) for key in ("budget", "held", "due", "fulfilled")]
    by_stretch = (
        (end, *(_of_thousand(part[number]) for part in parts.values()))
        for number, end in enumerate(stretch_names(series.ends_ms))
    )
    title = say("fulfilment-all", lang)
    return section(
        lead + say("fulfilment", lang),
        figure(say("fulfilment-caption", lang), strips(rows, series.ends_ms, _PERMILLE, _HIGH_PERMILLE)),
        table(lead + say("fulfilment-table", lang), columns, table_rows),
        folded(title, table(lead + title, [say("up-to", lang), *parts], by_stretch)),
    )


def fulfilled(course: BudgetCourse) -> list[int | None]:
    """Fulfilment by stretch in permille, rounded down, at most 1000; None where nothing was due."""
    return [
        min(_PERMILLE, held * _PERMILLE // due) if due else None
        for held, due in zip(course.held_gpu_ms, course.due_gpu_ms, strict=True)
    ]


def _of_thousand(permille: int | None) -> str:
    return NOTHING if permille is None else f"{permille / 10:g} %"


def hosts(series: Series, lang: str, lead: str = "") -> Html:
    """What every host did: the map, the parts of its time, and when it was not simply there."""
    names = {state: say(state, lang) for state in STATES}
    shares = ((row_name(row), *(_share(row, state, series.ends_ms) for state in STATES)) for row in series.hosts)
    ends = stretch_names(series.ends_ms)
    out = [
        (row_name(row), tag("span", text)) for row in series.hosts if (text := "; ".join(_outages(row, ends, names)))
    ]
    title, columns = say("hosts-out", lang), [say("host", lang), say("when", lang)]
    return section(
        lead + say("hosts", lang),
        figure(say("hosts-caption", lang), state_legend(names), host_map(series.hosts, series.ends_ms)),
        folded(
            say("hosts-table", lang),
            table(lead + say("hosts-table", lang), [say("host", lang), *names.values()], shares),
        ),
        *([folded(title, table(lead + title, columns, out))] if out else []),
    )


def row_name(row: HostRow) -> str:
    """The host, or the first and the last of several."""
    return row.first if row.hosts == 1 else f"{row.first} - {row.last}"


def _share(row: HostRow, state: str, ends_ms: tuple[int, ...]) -> str:
    """The part of the whole time, of stretches that need not be equally long."""
    parts = row.permille.get(state, ())
    lengths = [end - before for before, end in zip((0, *ends_ms), ends_ms, strict=False)]
    whole = sum(lengths)
    return percent(sum(part * length for part, length in zip(parts, lengths, strict=False)) / (whole or 1) / _PERMILLE)


def _outages(row: HostRow, ends: list[str], names: Mapping[str, str]) -> Iterator[str]:
    for state, first, last in spans(row, len(ends)):
        if state in _OUT:
            yield f"{names[state]} {ends[first - 1] if first else '0'} - {ends[last]}"


def losses(series: Series, lang: str, lead: str = "") -> Html:
    """GPU-hours lost by cause, evictions by reason and promises, in time, and all of their numbers."""
    lost = {name_of("lost", cause, lang): amounts for cause, amounts in series.lost_gpu_ms.items()}
    left = {name_of("evicted", reason, lang): counts for reason, counts in series.evictions.items()}
    promised = {name_of("promise", fate, lang): counts for fate, counts in series.promises.items()}
    columns = [
        *((say("lost", lang), name, [hours(value / HOUR_MS) for value in amounts]) for name, amounts in lost.items()),
        *((say("evictions", lang), name, [f"{value:,}" for value in counts]) for name, counts in left.items()),
        *((say("promises", lang), name, [f"{value:,}" for value in counts]) for name, counts in promised.items()),
    ]
    rows = (
        (end, *(values[number] for _, _, values in columns)) for number, end in enumerate(stretch_names(series.ends_ms))
    )
    head = [say("up-to", lang), *(f"{group}: {name}" for group, name, _ in columns)]
    title = say("by-stretch", lang)
    strips_of = [Strip(name, hours(sum(values) / HOUR_MS), values) for name, values in lost.items()]
    return joined(
        (
            section(lead + say("lost", lang), figure(say("lost-caption", lang), _scaled(strips_of, series.ends_ms))),
            section(lead + say("evictions", lang), _counted(left, series.ends_ms, "evictions", lang)),
            section(lead + say("promises", lang), _counted(promised, series.ends_ms, "promises", lang)),
            folded(title, table(lead + title, head, rows)),
        )
    )


def _counted(found: Mapping[str, tuple[int, ...]], ends_ms: tuple[int, ...], key: str, lang: str) -> Html:
    rows = [Strip(name, f"{sum(counts):,}", counts) for name, counts in found.items()]
    return figure(say(f"{key}-caption", lang), _scaled(rows, ends_ms)) if rows else tag("p", say(f"no-{key}", lang))


def _scaled(rows: list[Strip], ends_ms: tuple[int, ...]) -> Html:
    """Strips on the scale of the highest column among them."""
    most = max((height for row in rows for height in row.heights if height), default=1)
    return strips(rows, ends_ms, most)


def rests_on(rules: Iterable[Data], workload: str, result: str, lang: str) -> list[Html]:
    """What the numbers rest on: rules with counts, and digests."""
    told = [(tag("span", rule["rule"], class_="words"), f"{rule['count']:,}") for rule in rules]
    found = (
        table(say("rules", lang), [say("rule", lang), say("count", lang)], told)
        if told
        else tag("p", say("no-rules", lang))
    )
    return [tag("h2", say("rests-on", lang)), found, tag("p", say("digests", lang, workload=workload, result=result))]


def span_of(days: float) -> str:
    """How long was measured."""
    return length_of(round(days * 24 * HOUR_MS))
