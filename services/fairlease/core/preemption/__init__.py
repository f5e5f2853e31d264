"""Who must leave for whom (decisions.md 5)."""
