"""What became of a suite, for a page of text: tables in Markdown, and pictures beside it as SVG of their own.

Pictures are black on white, so that they look the same on every ground and in print; what lies in one row differs by
its shape. Every number of a picture stands in a table of the same page.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from fairlease.simulator.comparison import bounds_told, shown
from fairlease.simulator.page.paper import Html, joined, tag
from fairlease.simulator.robustness import BROKEN, GAINS
from fairlease_schemas.comparison import Range
from fairlease_schemas.robustness import Case, Missed, Robustness

FAIR, WAITS, GAINED = "policy-fairness.svg", "policy-waits.svg", "policy-gains.svg"
_LEFT: Final = 170
_WIDE: Final = 700
_ROW: Final = 24
_TOP: Final = 60
_MARKS: Final = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3_600, "1 h"), (21_600, "6 h"))
_LATER: Final = ((86_400, "1 d"), (604_800, "7 d"), (5_184_000, "60 d"))
_CROWDED: Final = 0.4
"""A scale that begins below has marks twice as far apart."""
_DISC, _RING, _CROSS, _BOX, _BLOCK, _PEAK = "disc", "ring", "cross", "box", "block", "peak"
_SHAPES: Final = {
    _DISC: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    _RING: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    _CROSS: "M-5 -5L5 5M-5 5L5 -5",
    _BOX: "M-5 -5h10v10h-10z",
    _BLOCK: "M-5 -5h10v10h-10z",
    _PEAK: "M0 -6L6 5H-6z",
}


Place = Callable[[float], float]
"""Where a value lies from the left, 0, to the right, 1."""


class _Mark(NamedTuple):
    """What a shape stands for: a figure by its public name, and how it is called here."""

    shape: str
    figure: str
    name: str


# pictures --------------------------------------------------------------------------------------------
def pictures(found: Robustness, limit: float | None) -> dict[str, str]:
    """Every picture by the name of its file; that of gains, with their limit, where any case has a game."""
    told = {FAIR: _fairness(found.cases), WAITS: _waits(found.cases)}
    games = {name: case for name, case in found.cases.items() if GAINS[0] in case.figures}
    return {**told, GAINED: _gains(games, limit)} if games else told


def _fairness(cases: dict[str, Case]) -> str:
    marks = (
        _Mark(_DISC, "fulfilment.mean", "fulfilment, mean"),
        _Mark(_RING, "fulfilment.lowest", "fulfilment, lowest budget"),
        _Mark(_CROSS, "occupancy", "occupancy"),
    )
    values = [case.figures[mark.figure].median for case in cases.values() for mark in marks]
    least = min((value for value in values if value is not None), default=0.0)
    floor = min(0.9, math.floor(least * 10) / 10)
    step = 5 if floor > _CROWDED else 10
    steps = round((1 - floor) * 100 / step)
    grid = [(k / steps, f"{floor * 100 + step * k:.0f} %") for k in range(steps + 1)]
    return _dots("What budgets got of their due, and how full the hosts were", cases, marks, grid, _linear(floor, 1))


def _waits(cases: dict[str, Case]) -> str:
    marks = (
        _Mark(_PEAK, "wait.debug.p90_s", "debug, 9 of 10"),
        _Mark(_RING, "wait.all.p50_s", "all, half"),
        _Mark(_DISC, "wait.all.p90_s", "all, 9 of 10"),
        _Mark(_BOX, "wait.gangs_128.p90_s", "gangs from 128 GPUs, 9 of 10"),
    )
    ends = (*_MARKS, *_LATER)
    most = math.log(ends[-1][0])
    grid = [(math.log(seconds) / most, name) for seconds, name in ends]
    return _dots("How long jobs waited", cases, marks, grid, lambda value: math.log(max(1.0, value)) / most)


def _linear(least: float, most: float) -> Place:
    return lambda value: (value - least) / (most - least)


def _dots(
    title: str, cases: dict[str, Case], marks: Sequence[_Mark], grid: Iterable[tuple[float, str]], place: Place
) -> str:
    """A row for each case, in it a shape for each mark where the case has that figure."""
    high = _TOP + _ROW * len(cases)
    shapes = [*_legend(marks), *_grid(grid, high)]
    for row, (name, case) in enumerate(cases.items()):
        y = _TOP + _ROW * row + _ROW // 2
        shapes.append(_words(name, _LEFT - 12, y + 4, "end"))
        shapes.append(tag("path", d=f"M{_LEFT} {y}h{_WIDE}", class_="row"))
        for mark in marks:
            value = case.figures[mark.figure].median
            if value is not None:
                shapes.append(_shape(mark.shape, _LEFT + place(value) * _WIDE, y))
    told = "; ".join(
        f"{name}: {', '.join(f'{mark.name} {shown(mark.figure, case.figures[mark.figure].median)}' for mark in marks)}"
        for name, case in cases.items()
    )
    return _sheet(title, told, shapes, high)


def _gains(games: dict[str, Case], limit: float | None) -> str:
    """Bars from nothing to the left or right, a full one and a hollow one in each row; the limit is dashed."""
    ranges = [case.figures[name] for case in games.values() for name in GAINS[:2]]
    ends = [abs(value) for one in ranges for value in (one.min, one.median, one.max) if value is not None]
    most = max(0.05, math.ceil(max(ends, default=0) * 20) / 20)
    high = _TOP + 2 * _ROW * len(games)
    place = _linear(-most, most)
    steps = (-most, -most / 2, 0.0, most / 2, most)
    marks = (_Mark(_BLOCK, "", "more GPU-time held (line: over the seeds)"), _Mark(_BOX, "", "more work done"))
    shapes = [
        *_legend(marks),
        *_grid([(place(step), f"{step * 100:+.3g} %" if step else "0 %") for step in steps], high),
    ]
    if limit is not None and limit <= most:
        shapes.append(tag("path", d=f"M{_LEFT + place(limit) * _WIDE:.1f} {_TOP}V{high}", class_="limit"))
    zero = _LEFT + place(0) * _WIDE
    for row, (name, case) in enumerate(games.items()):
        top = _TOP + 2 * _ROW * row
        shapes.append(_words(name, _LEFT - 12, top + _ROW + 4, "end"))
        for number, figure in enumerate(GAINS[:2]):
            found = case.figures[figure]
            y = top + 8 + number * 16
            if found.median is None or found.min is None or found.max is None:
                continue
            x = _LEFT + place(found.median) * _WIDE
            kind = "full" if number == 0 else "hollow"
            shapes.append(tag("path", d=f"M{zero:.1f} {y}H{x:.1f}v12H{zero:.1f}z", class_=kind))
            if number == 0 and found.max > found.min:
                first, last = (_LEFT + place(value) * _WIDE for value in (found.min, found.max))
                shapes.append(tag("path", d=f"M{first:.1f} {y - 3}H{last:.1f}", class_="span"))
    told = "; ".join(
        f"{name}: {shown(GAINS[0], case.figures[GAINS[0]].median)} held, "
        f"{shown(GAINS[1], case.figures[GAINS[1]].median)} in work"
        for name, case in games.items()
    )
    return _sheet("What a project gained by its game, in parts of what it is due", told, shapes, high)


def _legend(marks: Sequence[_Mark]) -> list[Html]:
    found: list[Html] = []
    x = _LEFT
    for mark in marks:
        found += [_shape(mark.shape, x, 20), _words(mark.name, x + 12, 24, "start")]
        x += 40 + 7 * len(mark.name)
    return found


def _grid(marks: Iterable[tuple[float, str]], high: int) -> list[Html]:
    found: list[Html] = []
    for part, name in marks:
        x = _LEFT + part * _WIDE
        found += [tag("path", d=f"M{x:.1f} {_TOP}V{high}", class_="grid"), _words(name, round(x), _TOP - 6, "middle")]
    return found


def _shape(shape: str, x: float, y: int) -> Html:
    kind = "full" if shape in (_DISC, _BLOCK) else "hollow"
    return tag("path", d=_SHAPES[shape], class_=kind, transform=f"translate({x:.1f} {y})")


def _words(text: str, x: int, y: int, anchor: str) -> Html:
    return tag("text", text, x=x, y=y, text_anchor=anchor)


_STYLE: Final = (
    "text{font:13px sans-serif;fill:#000}path{stroke:#000;fill:none}.grid{stroke:#ccc}.row{stroke:#eee}"
    ".full{fill:#000}.hollow{fill:#fff;stroke-width:1.6}.limit{stroke-dasharray:5 4}.span{stroke-width:1.6}"
)


def _sheet(title: str, told: str, shapes: Iterable[Html], high: int) -> str:
    wide = _LEFT + _WIDE + 40
    inner = joined(
        (
            tag("title", title),
            tag("desc", told),
            tag("style", Html(_STYLE)),
            tag("rect", x=0, y=0, width=wide, height=high + 16, fill="#fff"),
            *shapes,
        ),
        "\n",
    )
    box = f"0 0 {wide} {high + 16}"
    return tag("svg", inner, xmlns="http://www.w3.org/2000/svg", viewBox=box, width=wide, role="img") + "\n"


# text ------------------------------------------------------------------------------------------------
def part(found: Robustness, all_cases: Iterable[str]) -> str:
    """The page's part on these figures: how to have them again, tables, pictures, what is missed or was not played."""
    seeds = ", ".join(map(str, found.seeds))
    left_out = [name for name in all_cases if name not in found.cases]
    names = "" if not left_out else f" --cases {','.join(found.cases)}"
    each = next((case.gpus // case.hosts for case in found.cases.values()), 0)
    hosts = "" if not found.hosts else f" --hosts {found.hosts}x{each}"
    command = (
        f"fairlease robust --policy {found.policy} --seeds {seeds.replace(' ', '')}{hosts} --days {found.days:g} "
        f"--warm-up {found.warm_up_days:g}{names}"
    )
    lead = f"`{found.policy}`, {'seed' if len(found.seeds) == 1 else 'seeds'} {seeds}, {found.days:g} days measured"
    lines = [
        f"{lead} after {found.warm_up_days:g} to warm up; medians over the seeds{_of_two(found)}, broken of the worst.",
        *("", "```sh", command, "```", ""),
        *_table(found.cases),
        *("", f"![What budgets got of their due and how full the hosts were, by case]({FAIR})", ""),
        *(f"![How long jobs waited, by case]({WAITS})", ""),
    ]
    games = {name: case for name, case in found.cases.items() if GAINS[0] in case.figures}
    if games:
        lines += [*_games(games), "", f"![What each game gained, held and in work]({GAINED})", ""]
    if left_out:
        lines += [f"Not played: {', '.join(f'`{name}`' for name in left_out)}.", ""]
    lines += [f"No figures: `{one.case}`, seed {one.seed}: {one.why}." for one in found.missing]
    if found.missed:
        lines += ["Limits that were missed:", "", *(f"- {_missed(one)}" for one in found.missed), ""]
    else:
        lines += ["Every limit was kept.", ""]
    lines.append(f"Result `{found.digest}` of the suite `{found.suite_digest}`.")
    return "\n".join(lines) + "\n"


def _of_two(found: Robustness) -> str:
    return " (the lower one of the two in the middle)" if len(found.seeds) % 2 == 0 else ""


def _table(cases: dict[str, Case]) -> list[str]:
    head = (
        *("case", "what is different", "GPUs", "fulfilment: mean", "lowest", "at 95 %", "occupancy"),
        *("debug p90", "all p50", "all p90", "gangs p90", "overhead", "windows, loops, promises broken"),
    )
    figures = (
        *("fulfilment.mean", "fulfilment.lowest", "fulfilment.at_least_95", "occupancy", "wait.debug.p90_s"),
        *("wait.all.p50_s", "wait.all.p90_s", "wait.gangs_128.p90_s", "preemption.overhead"),
    )
    rows = [
        (
            f"`{name}`",
            case.says,
            f"{case.gpus:,}",
            *(shown(figure, case.figures[figure].median) for figure in figures),
            ", ".join(f"{case.figures[figure].max or 0:.0f}" for figure in BROKEN),
        )
        for name, case in cases.items()
    ]
    return _lines(head, rows)


def _games(games: dict[str, Case]) -> list[str]:
    head = (
        "game",
        "gain in GPU-time held",
        "over the seeds",
        "gain in work done",
        "held beyond its due",
        "cost to others",
    )
    rows = [
        (
            f"`{name}`",
            shown(GAINS[0], case.figures[GAINS[0]].median),
            over(case.figures[GAINS[0]], GAINS[0]) or "-",
            *(shown(figure, case.figures[figure].median) for figure in GAINS[1:]),
        )
        for name, case in games.items()
    ]
    return _lines(head, rows)


def over(found: Range, figure: str) -> str:
    """From the least to the most over the seeds, in words; empty where they are one."""
    return "" if found.min == found.max else f"{shown(figure, found.min)} to {shown(figure, found.max)}"


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _missed(one: Missed) -> str:
    must = bounds_told(one, partial(shown, one.figure))
    whose = "the median" if one.seed is None else f"seed {one.seed}"
    return f"`{one.case}`: {one.figure} of {whose} is {shown(one.figure, one.value)}, must be {must}"
