"""Fairlease: a GPU-cluster scheduler whose every decision is a record that anyone can re-decide.

Floors, each importing only those before it: `fairlease_schemas`, `core` (pure decisions), `runtime`
(bus, clocks, files), the services and the agent beside each other, `cli`.
"""
