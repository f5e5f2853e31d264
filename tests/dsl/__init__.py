"""Builders and a cell in memory, for tests that tell stories about the core."""
