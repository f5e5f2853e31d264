"""The page of one simulation."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlease.simulator.comparison import figures_of, shown
from fairlease.simulator.page.paper import folded, section, sheet, table
from fairlease.simulator.page.plots import patterns
from fairlease.simulator.page.sections import fulfilment, hosts, losses, meanings, rests_on, span_of, tiles, waits
from fairlease.simulator.page.words import say
from fairlease_schemas.series import Series


def simulation_page(report: Mapping[str, Any], lang: str) -> str:
    """The page of a SimulationReport, in `en` or `zh`."""
    series = msgspec.convert(report["series"], Series)
    figures = figures_of(report)
    rows = ((name, shown(name, value)) for name, value in figures.items())
    title = say("figures-table", lang)
    every = folded(title, table(title, [say("figure", lang), say("value", lang)], rows))
    lead = say(
        "simulation-lead",
        lang,
        hosts=report["hosts"],
        gpus=report["gpus"],
        length=span_of(report["days"]),
        seed=report["seed"],
    )
    return sheet(
        say("simulation", lang, policy=report["policy"]),
        [lead],
        [
            patterns(),
            section(say("in-short", lang), tiles(figures, lang), meanings(lang), every),
            waits(report, series, lang),
            fulfilment(report, series, lang),
            hosts(series, lang),
            losses(series, lang),
        ],
        rests_on(report["rules"], report["workload_digest"], report["digest"], lang),
        lang,
    )
