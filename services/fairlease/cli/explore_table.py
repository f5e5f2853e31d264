"""The screen of an exploration: a row for each point, those first that keep every limit and that none beats."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlease.cli.numbers import written
from fairlease.cli.table import Column, Style, cell_width, table
from fairlease.cli.wording import count, length
from fairlease.simulator.comparison import Limit, shown
from fairlease.simulator.exploration import worth
from fairlease.simulator.page.words import FIGURES
from fairlease_schemas.comparison import Aim, Exploration, Point
from fairlease_schemas.units import DAY_MS

_ROWS: Final = 40
_MISSING: Final = 10
_FRONT: Final = "*"


def name_of(numbers: Mapping[str, Any]) -> str:
    """A point in one line: its numbers as people write them."""
    return " ".join(f"{name}={written(name, value)}" for name, value in numbers.items()) or "the only point"


def table_of(found: Exploration, limits: Mapping[str, Limit], style: Style) -> str:
    """Points, then what was compared and what it is of; 40 points unless the style is wide."""
    ordered = sorted(found.points, key=lambda one: _order(one, found.aims))
    rows = ordered if style.is_wide else ordered[:_ROWS]
    parts = [table(columns, cells, style) for columns, cells in _blocks(found, rows, style, has_limits=bool(limits))]
    return "\n".join([*parts, "".join(f"{line}\n" for line in _foot(found, rows, limits))])


def _order(point: Point, aims: Mapping[str, Aim]) -> tuple[bool, int, bool, tuple[float, ...]]:
    """With figures; with the fewest limits missed; on the front; the best in the first aim; else as in the grid."""
    best = worth({name: one.median for name, one in point.figures.items()}, aims)
    return not point.seeds, len(point.missed), not point.is_front, tuple(-value for value in best)


def _blocks(
    found: Exploration, rows: Sequence[Point], style: Style, *, has_limits: bool
) -> list[tuple[list[Column], list[list[str]]]]:
    """As many aims side by side as fit, the point before each block of them."""
    names = list(rows[0].numbers)
    lead = [[_FRONT if one.is_front else "", *(written(name, one.numbers[name]) for name in names)] for one in rows]
    heads = [Column(""), *(Column(name, is_number=True) for name in names)]
    ends: list[tuple[str, list[str]]] = [
        (_title(name), [shown(name, one.figures[name].median) for one in rows]) for name in found.aims
    ]
    if has_limits:
        ends.append(("MISSED", [str(len(one.missed)) if one.seeds else "-" for one in rows]))
    room = style.width - sum(
        2 + max(map(cell_width, (head.title, *cells))) for head, *cells in zip(heads, *lead, strict=True)
    )
    blocks: list[list[tuple[str, list[str]]]] = [[]]
    left = room
    for end in ends:
        needed = 2 + max(map(cell_width, (end[0], *end[1])))
        if blocks[-1] and left < needed:
            blocks.append([])
            left = room
        blocks[-1].append(end)
        left -= needed
    return [
        (
            [*heads, *(Column(title, is_number=True) for title, _ in block)],
            [[*line, *(cells[place] for _, cells in block)] for place, line in enumerate(lead)],
        )
        for block in blocks
    ]


def _title(name: str) -> str:
    return FIGURES[name]["en"] if name in FIGURES else name


def _foot(found: Exploration, rows: Sequence[Point], limits: Mapping[str, Limit]) -> list[str]:
    lines = []
    if len(rows) < len(found.points):
        lines.append(f"and {count(len(found.points) - len(rows), 'point')} more: -o wide shows all")
    if len(rows[0].seeds) > 1 or len(found.seeds) > 1:
        lines.append("medians over the seeds")
    lines.append(f"{_FRONT} no other point is as good in every aim and better in one")
    if limits:
        kept = sum(not one.missed for one in found.points)
        lines.append(
            f"{count(kept, 'point') if kept else 'no point'} keeps every limit"
            if kept < 2
            else f"{kept} points keep every limit"
        )
        if not kept:
            nearest = rows[0]
            lines.append(f"the nearest is {name_of(nearest.numbers)}, which misses {', '.join(nearest.missed)}")
    if found.shared:
        lines.append(f"at all points {name_of(found.shared)}")
    seeds = f"{'seed' if len(found.seeds) == 1 else 'seeds'} {', '.join(map(str, found.seeds))}"
    seeds = seeds if found.seeds else "no seed, for the points have none in common"
    runs = sum(len(one.seeds) for one in found.points)
    where = f"{length(round(found.days * DAY_MS))} on {count(found.hosts, 'host')}"
    lines.append(f"{count(len(found.points), 'point')}, {count(runs, 'run')}, compared on {seeds}, {where}")
    if len(found.code) > 1:
        lines.append(
            f"played by {len(found.code)} different codes of this program: their figures may not be comparable"
        )
    lines += [f"workload {found.workload_digest}", f"result   {found.digest}"]
    names = {one.policy_digest: name_of(one.numbers) for one in found.points}
    lines += [f"no figures: {names[one.policy]}, seed {one.seed}: {one.why}" for one in found.missing[:_MISSING]]
    if len(found.missing) > _MISSING:
        lines.append(f"and {count(len(found.missing) - _MISSING, 'run')} more without figures")
    return lines
