"""Figures in the words of people: GPU-hours, per cents and measured lengths, as every screen and page shows them."""

from typing import Final

from fairlease_schemas.units import HOUR_MS

NOTHING: Final = "-"
_STEPS: Final = (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0))


def percent(ratio: float | None) -> str:
    """A ratio in per cent with one decimal; never rounded up to what it did not reach."""
    return NOTHING if ratio is None else f"{int(ratio * 1_000 + 1e-9) / 10:.1f} %"


def gpu_hours(gpu_ms: int) -> str:
    """GPU-hours with one decimal, halves up; what is there and smaller says so."""
    tenths = (gpu_ms * 10 + HOUR_MS // 2) // HOUR_MS
    if tenths == 0 and gpu_ms > 0:
        return "<0.1"
    sign = "-" if tenths < 0 else ""
    return f"{sign}{abs(tenths) // 10:,}.{abs(tenths) % 10}"


def hours(gpu_h: float) -> str:
    """GPU-hours of the report, which tells them to some milliseconds, as every screen shows them."""
    return gpu_hours(round(gpu_h * HOUR_MS))


def rough(seconds: float | None) -> str:
    """A measured length in its largest unit with one decimal, seconds below a minute."""
    if seconds is None:
        return NOTHING
    for unit, unit_s in _STEPS:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.1f}{unit}"
    return f"{seconds:.1f}s"
