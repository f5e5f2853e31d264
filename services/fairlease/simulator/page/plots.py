"""Pictures: SVG for the shapes, HTML around it for words and numbers, so that no text is ever stretched.

No picture tells by colour alone: lines differ by their dashes, states of hosts by their patterns, and everything by
its place. Nothing is rounded for a picture that is told in words: those numbers stand in the tables.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from fairlease.figures.wording import rough
from fairlease.simulator.page.paper import Html, tag
from fairlease.simulator.rows import STATES
from fairlease_schemas.series import HostRow
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

WIDE: Final = 1000
_HIGH: Final = 100
_MARKS_MS: Final = (
    *(SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 10 * MINUTE_MS),
    *(HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS, 60 * DAY_MS),
)
"""Marks of the axis of waits, equally far apart; between two of them lengths are placed by their logarithm."""
_LINES: Final = ("sa", "sb d1", "sc d2", "sd d3", "se d4", "sf d5", "sg d6")
_ROW_HEIGHTS: Final = (4, 20)
_MAP_HEIGHT: Final = 512
_GAP_FROM: Final = 8
"""Rows that are higher have a line between them; of lower ones it would be most of what is seen."""
_FEW_ROWS: Final = 16
_RISING: Final = "M-4 4l8-8M0 16l16-16M12 20l8-8"
_IDLE: Final = "idle"
_HIDDEN: Final = {"aria_hidden": "true", "focusable": "false"}
"""Shapes are for eyes: who cannot see them reads the table beside."""


class Line(NamedTuple):
    """A curve of waits, as in a series: `wait_ms[k]` at `permille[k]`."""

    name: str
    permille: Sequence[int]
    wait_ms: Sequence[int]


class Strip(NamedTuple):
    """A row of columns: its name, what they come to in words, and a height for each stretch (None: nothing there)."""

    name: str
    total: str
    heights: Sequence[int | None]


class Bar(NamedTuple):
    """A value and the range it lies in, all of one unit and not negative, and how that is told."""

    name: str
    value: float
    least: float
    most: float
    told: str


def line_class(number: int) -> str:
    """How the line of this number is drawn; after the last the first again."""
    return f"line {_LINES[number % len(_LINES)]}"


def legend(names: Iterable[str]) -> Html:
    """What each line stands for, by number."""
    samples = (
        tag("svg", tag("line", x1=0, y1=10, x2=52, y2=10, class_=line_class(number)), viewBox="0 0 52 20", **_HIDDEN)
        for number in range(len(_LINES))
    )
    return tag("ul", *(tag("li", sample, name) for sample, name in zip(samples, names, strict=False)), class_="legend")


def curves(lines: Sequence[Line], height: str) -> Html:
    """For each wait how many waited no longer. Waits of a second and less stand at the left edge."""
    most_ms = max((line.wait_ms[-1] for line in lines if line.wait_ms), default=0)
    needed = next((number for number, mark_ms in enumerate(_MARKS_MS) if mark_ms >= most_ms), len(_MARKS_MS) - 1)
    marks = _MARKS_MS[: max(2, needed + 1)]
    grid = [_grid(y1=y, y2=y, x1=0, x2=WIDE) for y in (25, 50, 75)]
    steps = len(marks) - 1
    grid += [_grid(x1=x, x2=x, y1=0, y2=_HIGH) for x in (WIDE * k // steps for k in range(1, steps))]
    drawn = [
        tag("polyline", points=_points(line, marks), class_=line_class(number))
        for number, line in enumerate(lines)
        if line.wait_ms
    ]
    area = tag(
        "svg", *grid, *drawn, class_=height, viewBox=f"0 0 {WIDE} {_HIGH}", preserveAspectRatio="none", **_HIDDEN
    )
    scale = tag("div", *(tag("span", f"{part} %") for part in (100, 75, 50, 25, 0)), class_="scale")
    return tag("div", scale, area, _ticks(_mark(mark_ms) for mark_ms in marks), class_="plot")


def strips(rows: Sequence[Strip], ends_ms: Sequence[int], most: int, guide: int = 0) -> Html:
    """Rows of columns over one axis of time, all up to `most`, with a line at `guide` where that is not 0."""
    parts: list[Html] = []
    for row in rows:
        shapes = [tag("path", d=_stairs(row.heights, ends_ms, most), class_="column")]
        if guide:
            y = _HIGH - guide * _HIGH // most
            shapes.append(tag("line", x1=0, x2=WIDE, y1=y, y2=y, class_="edge"))
        parts.append(tag("span", row.name, class_="name"))
        parts.append(tag("svg", *shapes, viewBox=f"0 0 {WIDE} {_HIGH}", preserveAspectRatio="none", **_HIDDEN))
        parts.append(tag("span", row.total, class_="sum"))
    return tag("div", *parts, _time(ends_ms), class_="strips")


def bars(rows: Sequence[Bar], most: float = 0) -> Html:
    """A bar each from 0, with a line from the least to the most; all up to `most`, or to the largest of them (0)."""
    most = most or max((row.most for row in rows), default=0) or 1
    parts: list[Html] = []
    for row in rows:
        value, least, end = (int(number * WIDE / most) for number in (row.value, row.least, row.most))
        shapes = [tag("rect", x=0, y=4, width=value, height=12, class_="column")]
        if end > least:
            shapes.append(tag("path", d=f"M{least} 2V18M{least} 10H{end}M{end} 2V18", class_="line span"))
        parts.append(tag("span", row.name, class_="name"))
        parts.append(tag("svg", *shapes, class_="bar", viewBox=f"0 0 {WIDE} 20", preserveAspectRatio="none", **_HIDDEN))
        parts.append(tag("span", row.told, class_="sum"))
    return tag("div", *parts, class_="strips")


def host_map(rows: Sequence[HostRow], ends_ms: Sequence[int]) -> Html:
    """A row for each row of hosts: in every stretch the state that took most of it. Idle is blank."""
    height = min(max(_MAP_HEIGHT // max(1, len(rows)), _ROW_HEIGHTS[0]), _ROW_HEIGHTS[1])
    filled = height - (height > _GAP_FROM)
    paths: dict[str, list[str]] = {state: [] for state in STATES if state != _IDLE}
    places = _places(ends_ms)
    for number, row in enumerate(rows):
        for state, first, last in spans(row, len(ends_ms)):
            if state != _IDLE:
                x, width = places[first], places[last + 1] - places[first]
                paths[state].append(f"M{x} {number * height}h{width}v{filled}h-{width}z")
    high = height * max(1, len(rows))
    shapes = [tag("rect", x=0, y=0, width=WIDE, height=high, class_="ground")]
    for state, found in paths.items():
        if found:
            fill = {"class_": state} if state == "busy" else {"fill": f"url(#{state})"}
            shapes.append(tag("path", d="".join(found), **fill))
    area = tag("svg", *shapes, height=high, viewBox=f"0 0 {WIDE} {high}", preserveAspectRatio="none", **_HIDDEN)
    place = "rows" if len(rows) <= _FEW_ROWS else "ends"
    if len(rows) <= _FEW_ROWS:
        names = [row.first if row.hosts == 1 else f"{row.first} +{row.hosts - 1}" for row in rows]
    else:
        names = [rows[0].first, rows[len(rows) // 2].first, rows[-1].last]
    scale = tag("div", *(tag("span", name) for name in names), class_=f"scale {place}")
    return tag("div", scale, area, _time(ends_ms), class_="plot map")


def spans(row: HostRow, count: int) -> Iterator[tuple[str, int, int]]:
    """The row's states one after the other: (state, its first stretch, its last); the state that takes most of each.

    Of two that take as much the first of STATES, so that work is not hidden by rest.
    """
    before, since = "", 0
    for at in range(count + 1):
        state = ""
        if at < count:
            parts = [row.permille[name][at] if name in row.permille else 0 for name in STATES]
            state = STATES[parts.index(max(parts))] if any(parts) else _IDLE
        if state != before:
            if before:
                yield before, since, at - 1
            before, since = state, at


def patterns() -> Html:
    """The patterns of states, once for the whole page."""
    lines = {
        "saving": (_RISING,),
        "faulty": (_RISING, "M0 0l16 16M-4 12l8 8M12 -4l8 8"),
    }
    shapes = {state: [_ground(), *(_stroke(state, d) for d in paths)] for state, paths in lines.items()}
    shapes["drained"] = [_ground(), *(tag("circle", cx=x, cy=x, r=3, class_="mark-drained") for x in (4, 12))]
    made = (
        tag("pattern", *inside, id=state, width=16, height=16, patternUnits="userSpaceOnUse")
        for state, inside in shapes.items()
    )
    return tag("svg", tag("defs", *made), class_="none", **_HIDDEN)


def state_legend(names: dict[str, str]) -> Html:
    """What each pattern stands for; `names` by state."""
    samples = []
    for state, name in names.items():
        fill = {"class_": state} if state == "busy" else {"fill": f"url(#{state})"}
        shape = tag("rect", x=1, y=1, width=50, height=18, **({"class_": "ground"} if state == _IDLE else fill))
        frame = tag("rect", x=1, y=1, width=50, height=18, class_="edge")
        samples.append(tag("li", tag("svg", shape, frame, viewBox="0 0 52 20", **_HIDDEN), name))
    return tag("ul", *samples, class_="legend")


def stretch_names(ends_ms: Sequence[int]) -> list[str]:
    """Each stretch by its end, counted from the beginning."""
    return [length_of(end_ms) for end_ms in ends_ms]


def length_of(length_ms: int) -> str:
    """A length with two units where the smaller one is not nothing: `2d 6h`, `1h 15m`, `5m`."""
    for unit_ms, unit, smaller_ms, smaller in (
        (DAY_MS, "d", HOUR_MS, "h"),
        (HOUR_MS, "h", MINUTE_MS, "m"),
        (MINUTE_MS, "m", SECOND_MS, "s"),
    ):
        amount, rest = divmod(length_ms // smaller_ms, unit_ms // smaller_ms)
        if amount:
            return f"{amount}{unit} {rest}{smaller}" if rest else f"{amount}{unit}"
    return f"{length_ms // SECOND_MS}s"


def _ground() -> Html:
    return tag("rect", x=0, y=0, width=16, height=16, class_="ground")


def _stroke(state: str, d: str) -> Html:
    return tag("path", d=d, class_=f"line hatch mark-{state}")


def _grid(**places: int) -> Html:
    return tag("line", class_="grid", **places)


def _mark(mark_ms: int) -> str:
    return length_of(mark_ms)


def _ticks(names: Iterable[str]) -> Html:
    return tag("div", *(tag("span", name) for name in names), class_="ticks")


def _time(ends_ms: Sequence[int]) -> Html:
    """The axis of time: the beginning, the end, and what lies evenly between."""
    whole_ms = ends_ms[-1] if ends_ms else 0
    return _ticks("0" if not quarter else rough(whole_ms * quarter / 4 / SECOND_MS) for quarter in range(5))


def _points(line: Line, marks: Sequence[int]) -> str:
    """Left to right; flat where nobody waited so long, and up to the edge behind the last."""
    points = [
        (_place(wait_ms, marks), _HIGH - part / 10) for part, wait_ms in zip(line.permille, line.wait_ms, strict=True)
    ]
    points = [(points[0][0], float(_HIGH)), *points, (float(WIDE), 0.0)]
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _place(wait_ms: int, marks: Sequence[int]) -> float:
    steps = len(marks) - 1
    if wait_ms <= marks[0]:
        return 0.0
    for number in range(steps):
        if wait_ms <= marks[number + 1]:
            part = math.log(wait_ms / marks[number]) / math.log(marks[number + 1] / marks[number])
            return round((number + part) * WIDE / steps, 1)
    return float(WIDE)


def _places(ends_ms: Sequence[int]) -> list[int]:
    """Where the stretches begin, and where the last ends."""
    whole_ms = ends_ms[-1] if ends_ms else 1
    return [0, *(end_ms * WIDE // whole_ms for end_ms in ends_ms)]


def _stairs(heights: Sequence[int | None], ends_ms: Sequence[int], most: int) -> str:
    """Columns side by side as one outline; what has any height is at least a hundredth high."""
    places = _places(ends_ms)
    parts = []
    for number, height in enumerate(heights):
        if height:
            y = _HIGH - max(1, min(_HIGH, height * _HIGH // max(1, most)))
            parts.append(f"M{places[number]} {_HIGH}V{y}H{places[number + 1]}V{_HIGH}z")
    return "".join(parts)
