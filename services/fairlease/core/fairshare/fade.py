"""The lookback and its optional fade: how far back fairness remembers, and how much (2.2, 2.8).

Without a half-life everything within the lookback counts alike. With one, used and entitled fade
alike, in steps of 1/64 of the half-life on fixed multiples since 1970, by an integer table: so the
same log gives the same numbers wherever and whenever they are computed. The slow model: sum value x
weight over milliseconds. This one sums integral x weight over the steps that have a weight left.
"""

from typing import Final

from fairlease.core.fairshare.usage import Lumps, Meter
from fairlease_schemas.policy import Policy

STEPS: Final = 64
SHIFT: Final = 32
FADED_STEPS: Final = STEPS * (SHIFT + 1)
"""From this age on a weight is 0: a short half-life over a long lookback costs no more than this many steps."""
WEIGHTS: Final = tuple(
    map(
        int,
        """
        4294967296 4248701964 4202935003 4157661043 4112874773 4068570940 4024744347 3981389854
        3938502375 3896076880 3854108391 3812591986 3771522796 3730896002 3690706839 3650950594
        3611622602 3572718251 3534232977 3496162266 3458501653 3421246718 3384393094 3347936456
        3311872529 3276197082 3240905930 3205994934 3171459999 3137297074 3103502151 3070071267
        3037000499 3004285970 2971923841 2939910317 2908241642 2876914101 2845924020 2815267764
        2784941737 2754942382 2725266179 2695909647 2666869344 2638141863 2609723833 2581611923
        2553802833 2526293303 2499080104 2472160047 2445529971 2419186755 2393127307 2367348571
        2341847523 2316621173 2291666560 2266980758 2242560871 2218404035 2194507416 2170868211
        """.split(),  # noqa: SIM905 - eight rows can be checked by eye, sixty-four lines cannot
    )
)
"""2^32 x 2^(-k/64), rounded down, for k = 0 … 63."""


class Lookback:
    """What counts at `now_ms` under a policy: the last `lookback_ms`, faded if it has a half-life."""

    def __init__(self, policy: Policy, now_ms: int) -> None:
        self.now_ms = now_ms
        self.from_ms = now_ms - policy.lookback_ms
        self._step_ms = max(1, policy.half_life_ms // STEPS) if policy.half_life_ms else 0

    def integral(self, meter: Meter, from_ms: int, to_ms: int) -> int:
        """Value x milliseconds of the part of [from_ms, to_ms) that the lookback reaches, faded."""
        from_ms, to_ms = max(from_ms, self.from_ms), min(to_ms, self.now_ms)
        if not self._step_ms or to_ms <= from_ms or not meter.times_ms:
            return meter.integral(from_ms, to_ms)
        from_ms = max(from_ms, (self.now_ms // self._step_ms - FADED_STEPS) * self._step_ms)
        total = 0
        step = from_ms // self._step_ms
        while from_ms < to_ms:
            step += 1
            until_ms = min(step * self._step_ms, to_ms)
            total += meter.integral(from_ms, until_ms) * self._weight(from_ms) >> SHIFT
            from_ms = until_ms
        return total

    def lumps(self, lumps: Lumps) -> int:
        """Surcharges less credits within the lookback, faded by the step of their own instant."""
        if not self._step_ms:
            return lumps.within(self.from_ms)
        return sum(
            amount * self._weight(at_ms) >> SHIFT
            for at_ms, amount in lumps.each()
            if self.from_ms < at_ms <= self.now_ms
        )

    def _weight(self, at_ms: int) -> int:
        age = self.now_ms // self._step_ms - at_ms // self._step_ms
        return WEIGHTS[age % STEPS] >> (age // STEPS)
