"""The agent: the one process on a host that starts jobs, ends them and says what became of them.

It follows the orders of its hosts and makes the machine agree with them. It owns the run
directories: what was ever started here, what is running, what ended and how. It decides nothing
about who runs; it never starts an attempt twice, never lets two runs hold one GPU, and never says
that a run is gone while a process of it is left.
It is light, because it stands beside jobs that own the machine: no faststream, no pydantic.
"""
