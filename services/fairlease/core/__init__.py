"""Floor 1: every decision of Fairlease, pure. No clock, no chance, no I/O, nothing asynchronous.

The same functions serve the live services, the simulator and the replay. What a decision may read
is a `World` (the fold of the log up to a position) and the messages it answers, nothing else.
"""
