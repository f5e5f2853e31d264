"""Figures of a process for Prometheus, made when somebody asks.

Base units, `_total` on what only grows, and labels with few values: budgets and pools, never a job, an attempt or a
GPU. A figure is read from the process as it stands; only what is over by then, such as how long decisions took, is
counted as it happens. The form is Prometheus's own client's; its registry is not used, because a figure that is read
needs none, and a process of tests holds several services.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Histogram, Metric, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

PREFIX: Final = "fairlease_"
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
DECISION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WAIT_BOUNDS_S: Final = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200, 604_800)
_PROCESS: Final = ProcessCollector(registry=None)

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

# A second series of each figure, of when it began: the process's own start says as much.
disable_created_metrics()  # type: ignore[no-untyped-call] # the library leaves this one without types


class Sample(NamedTuple):
    """One value of a figure, and its labels."""

    value: float
    labels: Mapping[str, str] = NO_LABELS


def gauge(name: str, about: str, *samples: Sample) -> Metric:
    """A figure that goes up and down."""
    figure = GaugeMetricFamily(PREFIX + name, about)
    for value, labels in samples:
        figure.add_sample(figure.name, dict(labels), value)
    return figure


def counter(name: str, about: str, *samples: Sample) -> Metric:
    """A figure that only grows, from the process's start; its name ends in `_total`."""
    figure = CounterMetricFamily(PREFIX + name, about)
    for value, labels in samples:
        figure.add_sample(PREFIX + name, dict(labels), value)
    return figure


def histogram(name: str, about: str, bounds_s: Sequence[float], *labels: str) -> Histogram:
    """How often something took at most so long; `collect` gives the figure as it stands. Bounds ascend."""
    return Histogram(PREFIX + name, about, labels, buckets=bounds_s, registry=None)


def process_figures() -> Iterable[Metric]:
    """What every Prometheus client says of its process, under the names that they share."""
    return _PROCESS.collect()


class _Read(Collector):
    """Figures that are there already, for the library to write down."""

    def __init__(self, figures: Iterable[Metric]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        yield from self._figures


def text_of(figures: Iterable[Metric]) -> bytes:
    """The figures in Prometheus's text form, one after the other; one without samples is only announced."""
    return generate_latest(_Read(figures))
