"""How often an inbox may be refused: ten events a second, whatever its account sends (log.md L3).

Each refusal event in the log costs its inbox a tenth of a second, of which it may owe one second; with more it
rests until it owes less. What came meanwhile is then decided together, and its refusals told as one. Nobody else waits.
"""

from typing import Final

EACH_S: Final = 0.1
OWED_S: Final = 1.0
_MOST_S: Final = 2.0
"""What one record can bring an inbox to owe: refusals that were not told together keep it no longer than a second."""


class Pace:
    """What every inbox owes, by one clock of seconds that never steps back."""

    def __init__(self) -> None:
        self._paid_s: dict[str, float] = {}

    def count(self, stream: str, events: int, now_s: float) -> float:
        """Refusals of the inbox were written; in how many seconds it may be read on, 0 for at once."""
        paid_s = max(self._paid_s.get(stream, now_s), now_s) + events * EACH_S
        self._paid_s[stream] = min(paid_s, now_s + _MOST_S)
        return max(0.0, self._paid_s[stream] - OWED_S - now_s)

    def resting(self, now_s: float) -> frozenset[str]:
        """Inboxes that owe more than they may."""
        self._paid_s = {stream: paid_s for stream, paid_s in self._paid_s.items() if paid_s > now_s}
        return frozenset(stream for stream, paid_s in self._paid_s.items() if paid_s - OWED_S > now_s)

    def is_flooded(self, now_s: float) -> bool:
        """Whether an inbox owes half of what it may: then more of its messages are decided at a time."""
        return any(paid_s - OWED_S / 2 > now_s for paid_s in self._paid_s.values())
