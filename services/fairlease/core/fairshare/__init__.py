"""Who is entitled to what, who used what, and who is next (decisions.md 2 and 3)."""
