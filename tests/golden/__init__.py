"""Recorded logs: what was decided once is decided so again (STYLE.md, tests)."""
