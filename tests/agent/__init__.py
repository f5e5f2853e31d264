"""The agent with real processes: every job here is one, and none may be left over."""
