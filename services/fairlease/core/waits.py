"""Reasons in force by the service that wrote them: an index over the fold's reasons, made again from them.

The state keeps them under one key each; a step wants those of one service, many times in a cycle.
"""

from collections.abc import Mapping

from fairlease.core.dues import NEVER_MS
from fairlease.core.state import OpenReason


class Reasons:
    """Subject to reason, by service. It writes the state's own map beside its index; the world calls it alone."""

    def __init__(self, reasons: dict[str, OpenReason]) -> None:
        self._reasons = reasons
        self._by: dict[str, dict[str, OpenReason]] = {}
        self._version = 0
        self._end: tuple[int, int, int] = (-1, 0, 0)
        for key, reason in reasons.items():
            service, _, subject = key.partition(":")
            self._by.setdefault(service, {})[subject] = reason

    def of(self, service: str) -> Mapping[str, OpenReason]:
        """All of that service, in the order in which they began. Not to be written to."""
        return self._by.get(service, {})

    def began(self, service: str, subject: str, reason: OpenReason) -> None:
        """The subject waits for this from now on."""
        self._version += 1
        self._reasons[f"{service}:{subject}"] = self._by.setdefault(service, {})[subject] = reason

    def ended(self, service: str, subject: str) -> None:
        """The subject waits for that no longer; nothing happens when it did not."""
        self._version += 1
        self._reasons.pop(f"{service}:{subject}", None)
        self._by.get(service, {}).pop(subject, None)

    def next_end_ms(self, after_ms: int) -> int:
        """The first instant after `after_ms` until which a reason of a cycle's steps said to stand; else beyond all."""
        if self._end[:2] != (self._version, after_ms):
            steps = (*self.of("placement").values(), *self.of("preemption").values())
            ends = (one.since_ms + one.evidence.for_ms for one in steps if one.evidence.for_ms)
            self._end = (self._version, after_ms, min((at_ms for at_ms in ends if at_ms > after_ms), default=NEVER_MS))
        return self._end[2]
