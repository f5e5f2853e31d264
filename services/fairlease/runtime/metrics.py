"""Figures of a process in the text form that Prometheus reads (version 0.0.4), made when somebody asks.

Base units, `_total` on what only grows, and labels with few values: budgets and pools, never a job, an attempt or a
GPU. A figure is read from the process as it stands; only what is over by then, such as how long decisions took, is
counted as it happens.
"""

import bisect
import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

PREFIX: Final = "fairlease_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DECISION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WAIT_BOUNDS_S: Final = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200, 604_800)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

Labels = Mapping[str, str]
NO_LABELS: Final[Labels] = MappingProxyType({})
Number = int | float


class Sample(NamedTuple):
    """One value of a family; `suffix` is `_bucket`, `_sum` or `_count` in a histogram."""

    value: Number
    labels: Labels = NO_LABELS
    suffix: str = ""


class Family(NamedTuple):
    """One figure with all its labels; `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    about: str
    samples: Sequence[Sample]


def gauge(name: str, about: str, *samples: Sample) -> Family:
    """A figure that goes up and down."""
    return Family(PREFIX + name, "gauge", about, samples)


def counter(name: str, about: str, *samples: Sample) -> Family:
    """A figure that only grows, from the process's start."""
    return Family(PREFIX + name, "counter", about, samples)


class Histogram:
    """How often something was at most so much, by one label or none. Bounds ascend; the last bucket has no bound."""

    def __init__(self, name: str, about: str, bounds: Sequence[Number], label: str = "") -> None:
        self._name, self._about, self._bounds, self._label = PREFIX + name, about, bounds, label
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, Number] = {}

    def observe(self, value: Number, of: str = "") -> None:
        counts = self._counts.setdefault(of, [0] * (len(self._bounds) + 1))
        counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sums[of] = self._sums.get(of, 0) + value

    def family(self) -> Family:
        """The figure as it stands: each bucket holds those below it too."""
        samples: list[Sample] = []
        for of, counts in self._counts.items():
            labels = {self._label: of} if self._label else {}
            below = 0
            for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
                below += count
                samples.append(Sample(below, {**labels, "le": str(bound)}, "_bucket"))
            samples += [Sample(self._sums[of], labels, "_sum"), Sample(below, labels, "_count")]
        return Family(self._name, "histogram", self._about, samples)


def process_families() -> Iterator[Family]:
    """What every Prometheus client says of its process, under the names that they share."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - a file of the kernel, not of ours
        resident = int(statm.read().split()[1]) * _PAGE_BYTES
    yield Family("process_cpu_seconds_total", "counter", "User and system CPU time spent.", [Sample(cpu_s)])
    yield Family("process_resident_memory_bytes", "gauge", "Resident memory.", [Sample(resident)])


def text_of(families: Iterable[Family]) -> bytes:
    """The families in that form, one after the other; one without samples is only announced."""
    lines: list[str] = []
    for name, kind, about, samples in families:
        lines += [f"# HELP {name} {_escaped(about)}", f"# TYPE {name} {kind}"]
        for value, labels, suffix in samples:
            shown = ",".join(f'{key}="{_quoted(text)}"' for key, text in labels.items())
            lines.append(f"{name}{suffix}{{{shown}}} {value}" if shown else f"{name}{suffix} {value}")
    return ("\n".join(lines) + "\n").encode()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
