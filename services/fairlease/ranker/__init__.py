"""Ranker: the first step of a cycle, and the end of one whose next step is missing.

Owns `cycle-ranked` and `cycle-abandoned` (scope `alloc`). Follows the log alone, and its own timers.
Never places: its record is numbers and candidates.
"""
