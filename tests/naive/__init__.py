"""Slow, obvious models of the rules that decide, to compare the fast ones with.

Each is written from decisions.md and imports nothing of the core but the data it reads: the world's views,
the policy, the messages. `living` is the cell they are compared in: one whose agents do what agents do.
"""
