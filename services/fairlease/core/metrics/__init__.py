"""The figures of a log, exact and pure: the same from a live log, a simulated and a replayed one."""
