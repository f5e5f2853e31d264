"""Placement: the second step of a cycle: gangs granted, and why the others wait.

Owns `gang-granted`, `cycle-placed` and the reasons of classes (scope `alloc`). Follows the log alone.
Never evicts: a pick that may evict is handed on as a claim.
"""
