"""Floor 2: the shell. The only code that knows the bus, clocks, files and the environment.

It reads bytes, asks core for a decision and appends one record (log.md L3); it has no branch on a
domain value. What is light (`settings`, `connection`, `bus_server`, `streams`, `log`, `timers`)
loads without faststream and pydantic, because the agent and the command line stand on it.
"""
