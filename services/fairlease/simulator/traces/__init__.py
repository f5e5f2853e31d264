"""Recorded workloads for the simulator: Philly, Helios and Muri tables and our own logs, as one type of row."""

from fairlease.simulator.traces.cells import TraceWrong
from fairlease.simulator.traces.reading import read_trace
from fairlease.simulator.traces.row import Ending, Trace, TraceJob
from fairlease.trace.workload import Rule

__all__ = ["Ending", "Rule", "Trace", "TraceJob", "TraceWrong", "read_trace"]
