"""What an agent answers about itself: its process, its hosts' leases, the runs it watches."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import Metric

from fairlease.agent.host import Host
from fairlease.runtime.metrics import Sample, counter, gauge, process_figures
from fairlease.runtime.probe import Probe
from fairlease.runtime.spans import Spans


def probe(hosts: Sequence[Host], spans: Spans, is_connected: Callable[[], bool]) -> Probe:
    """The listener of an agent with these hosts, of which there may be more by the time somebody asks."""

    def trouble() -> str:
        if not is_connected():
            return "the bus is away"
        silent = [host.id for host in hosts if not host.lease.is_valid]
        return f"no lease: {', '.join(silent)}" if silent else ""

    def figures() -> Iterator[Metric]:
        yield gauge("ready", "Whether this process does its work.", Sample(int(not trouble())))
        yield from process_figures()
        yield counter("spans_lost_total", "Spans that reached no collector.", Sample(spans.lost))
        yield gauge("agent_hosts", "Hosts that this agent serves.", Sample(len(hosts)))
        yield gauge("agent_leases", "Hosts whose lease stands.", Sample(sum(host.lease.is_valid for host in hosts)))
        runs = Counter(state for host in hosts for state in host.states())
        yield gauge("agent_runs", "Runs kept here.", *(Sample(runs[of], {"state": of}) for of in sorted(runs)))

    return Probe(figures, trouble)
