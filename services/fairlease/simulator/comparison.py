"""A comparison: figures of many runs put side by side, by policy over the seeds.

A figure is any number of a report, named by its keys with dots between. What a machine's speed tells, and what says
which run it was, is no figure. A median is one of the values, the lower of two in the middle, as every quantile is.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from fairlease.figures.wording import hours, percent, rough
from fairlease.simulator.past import Past
from fairlease_schemas.comparison import (
    Assumption,
    Comparison,
    Outcome,
    Played,
    Range,
    Unplayed,
    WaitChange,
    WhatIf,
)
from fairlease_schemas.robustness import Missed
from fairlease_schemas.units import SECOND_MS

Data = dict[str, Any]
Number = int | float

_CHANGED_JOBS: Final = 50
_NO_FIGURES: Final = frozenset(("seed", "hosts", "gpus", "days", "speed", "series", "rules", "waits"))
_COUNTED: Final = ("preemption.by_reason.", "promises.voided_by.")
"""Tables by what happened: what is not in them happened never."""
_RATIOS: Final = frozenset(
    (
        *("availability", "occupancy", "impact", "progress", "utilisation"),
        *("fulfilment.mean", "fulfilment.lowest", "fulfilment.uncapped_mean", "fulfilment.share_error"),
        *("preemption.overhead", "recovery.resume_rate"),
    )
)
_GAIN: Final = "gain."
"""Parts of what was due, more or less than without a game: nearest tenths, with their sign."""
_RATIOS_OF: Final = ("fulfilment.by_budget.", "fulfilment.uncapped_by_budget.")


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a figure has to be: at least, at most, or both. A figure that is absent is neither."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: Number | None) -> bool:
        """Whether the value is within the limit."""
        if value is None:
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def bounds_told(limit: Limit | Missed, told: Callable[[float], str]) -> str:
    """What a limit asks for, in words: each bound that there is, as `told` writes it."""
    bounds = (("at least", limit.least), ("at most", limit.most))
    return " and ".join(f"{word} {told(bound)}" for word, bound in bounds if bound is not None)


def figures_of(report: Mapping[str, Any]) -> dict[str, Number | None]:
    """Every figure of a report by its name, in the order of the report."""
    return dict(_walk({key: value for key, value in report.items() if key not in _NO_FIGURES}, ""))


def _walk(found: Mapping[str, Any], lead: str) -> Iterator[tuple[str, Number | None]]:
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _walk(value, f"{lead}{key}.")
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield f"{lead}{key}", value


def is_counted(name: str) -> bool:
    """Whether this is a count by what happened, which a report has only if it did."""
    return name.startswith(_COUNTED)


def shown(name: str, value: Number | None) -> str:
    """The value of a figure in the words of people: its name says what it is of."""
    if value is None:
        return percent(None)
    if name in _RATIOS or name.startswith(_RATIOS_OF):
        return percent(value)
    if name.startswith(_GAIN):
        return f"{round(value * 100, 1) + 0.0:+.1f} %"
    if name.endswith("_s"):
        return rough(value)
    if "gpu_h" in name:
        return hours(value)
    return f"{value:,}" if isinstance(value, int) or value != int(value) else f"{int(value):,}"


def span(least: str, most: str) -> str:
    """From one value to another, both as `shown` says them, with the sign of per cent said once."""
    return f"{least.removesuffix(' %') if most.endswith(' %') else least} - {most}"


def spread_of(name: str, found: Iterable[Number | None]) -> Range:
    """The figure over the runs that have it."""
    absent = 0 if is_counted(name) else None
    ordered = sorted(value for value in (absent if one is None else one for one in found) if value is not None)
    if not ordered:
        return Range(median=None, min=None, max=None)
    return Range(median=ordered[(len(ordered) + 1) // 2 - 1], min=ordered[0], max=ordered[-1])


def compared(
    policies: Sequence[str],
    reports: Sequence[Data],
    missing: Sequence[Unplayed],
    limits: Mapping[str, Limit],
    frame: Data,
) -> Comparison:
    """The comparison of these runs, which are in the order of `policies` and then of seeds.

    `frame` says what was played: `workload`, `workload_digest`, `hosts`, `gpus`, `days`, `seeds`. The limits are of the
    first policy, and one that it has no figure for is missed.
    """
    runs = tuple(Played(policy=one["policy"], seed=one["seed"], digest=one["digest"]) for one in reports)
    told = [figures_of(report) for report in reports]
    ranges = {
        policy: _ranges([figures for run, figures in zip(runs, told, strict=True) if run.policy == policy])
        for policy in policies
    }
    first = ranges[policies[0]]
    nothing = Range(median=None, min=None, max=None)
    proof = [[run.policy, run.seed, run.digest, figures] for run, figures in zip(runs, told, strict=True)]
    return Comparison(
        **frame,
        policies=ranges,
        missed=tuple(name for name, limit in limits.items() if not limit.holds(first.get(name, nothing).median)),
        missing=tuple(missing),
        runs=runs,
        digest=hashlib.sha256(msgspec.json.encode([frame["workload_digest"], proof])).hexdigest(),
    )


def _ranges(runs: Sequence[dict[str, Number | None]]) -> dict[str, Range]:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: spread_of(name, (run.get(name) for run in runs)) for name in names}


def what_if(past: Past, again: Data, would: Data, change: dict[str, str]) -> WhatIf:
    """The past, the same played again, and with the change. A wait is another one from a whole second on."""
    reports = (past.report, again, would)
    was, repeated, changed = (figures_of(report) for report in reports)
    names = dict.fromkeys(name for name in (*was, *repeated, *changed))
    rules = {one["rule"]: one["count"] for one in (*past.rules, *would["rules"])}
    jobs = [
        WaitChange(
            job=job,
            budget=past.budgets[job],
            was_ms=wait_ms,
            again_ms=again["waits"].get(job),
            would_ms=would["waits"].get(job),
        )
        for job, wait_ms in past.waits.items()
    ]
    moved = [one for one in jobs if abs(_moved_ms(one)) >= SECOND_MS]
    earlier = sum(_moved_ms(one) < 0 for one in moved)
    return WhatIf(
        digest=past.report["digest"],
        days=past.report["days"],
        hosts=past.report["hosts"],
        gpus=past.report["gpus"],
        change=change,
        figures={name: Outcome(was=was.get(name), again=repeated.get(name), would=changed.get(name)) for name in names},
        earlier=earlier,
        later=len(moved) - earlier,
        same=len(jobs) - len(moved),
        jobs=tuple(sorted(moved, key=lambda one: (-abs(_moved_ms(one)), one.job))[:_CHANGED_JOBS]),
        rules=tuple(Assumption(rule=rule, count=found) for rule, found in rules.items()),
    )


def _moved_ms(one: WaitChange) -> int:
    """How much longer the job would wait; 0 where one of the two is not known."""
    return one.would_ms - one.again_ms if one.would_ms is not None and one.again_ms is not None else 0
