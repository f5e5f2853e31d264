"""Preemption: the last step of a cycle: evictions and the reservations they are made for.

Owns `eviction-ordered`, reservations and `cycle-closed` (scope `alloc`). Follows the log alone, and
publishes what each host shall run, which is a projection of it. Never grants.
"""
