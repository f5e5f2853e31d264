"""Where a claim fits, and the grants of a cycle (decisions.md 4)."""
