"""The rules by which other schedulers rank, exact, as functions of plain values: to compare policies and to be checked.

Each stands in a module named after its design, with its source and what differs from it. Ratios are fractions, never
floats: an order is the same on every machine. Core does not use them; it has its own, `budget-window`.
"""

from fairlease.simulator.rankers import classic, fair_tree, hadoop_fair, kai_time, plain, usage_decay

__all__ = ["classic", "fair_tree", "hadoop_fair", "kai_time", "plain", "usage_decay"]
