"""Laws: what holds in every cell, whatever is said to it and in whatever order (STYLE.md, tests)."""
