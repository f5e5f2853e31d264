"""Recorded workloads: read from files of real clusters, and played through a whole live cell."""
