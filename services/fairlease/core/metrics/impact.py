"""Impact: how much of what was held was budgeted work within its budget's entitlement (M1).

By leaf, pool and bucket of one lookback, the first beginning with the period: min(held, entitled), summed. Over
a whole lookback a budget may hold more than its share now and less later, and that is what it is for; so the
buckets are no shorter. Entitled is divided by 2.2, a piece for every tree. What is not impact is held beyond
entitlement, or by idle work.
"""

from collections.abc import Iterable

import msgspec

from fairlease.core.budget import Tree
from fairlease.core.metrics.integral import Integral
from fairlease.core.metrics.pyramid import Pyramid
from fairlease.core.metrics.scope import Scope
from fairlease_schemas.ids import BudgetId, PoolId

Side = tuple[BudgetId, PoolId]


class Entitled(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-time of the period: held by budgeted work within its entitlement, and beyond it."""

    within_gpu_ms: int = 0
    beyond_gpu_ms: int = 0


class Impact:
    """Follows what each leaf's budgeted work holds, and what it is entitled to, bucket by bucket."""

    def __init__(self, pyramid: Pyramid, scope: Scope, since_ms: int) -> None:
        self._pyramid = pyramid
        self._scope = scope
        self._lookback_ms = 0
        self.ends_ms = since_ms
        """When the present bucket is over: `turn` comes before whatever happens later."""
        self._held: dict[Side, Integral] = {}
        self._held_before: dict[Side, int] = {}
        self._schedulable_before: dict[PoolId, int] = {}
        self._entitled: dict[Side, int] = {}
        self._within = 0
        self._total = 0
        pyramid.on_held.append(self._hold)

    def turn(self, tree: Tree, lookback_ms: int, now_ms: int) -> None:
        """Called before anything happens at `now_ms`: ends the buckets that are over.

        `tree` and `lookback_ms` are those that were in force up to now; a bucket keeps the length it began with.
        """
        if not self._lookback_ms and lookback_ms:
            self._lookback_ms = lookback_ms
            self.ends_ms += lookback_ms
        while self._lookback_ms and self.ends_ms < now_ms:
            self._end_piece(tree, self.ends_ms)
            within, total = self._bucket(self._entitled, self.ends_ms)
            self._within += within
            self._total += total
            self._held_before = {side: held.upto(self.ends_ms) for side, held in self._held.items()}
            self._entitled.clear()
            self._lookback_ms = lookback_ms
            self.ends_ms += lookback_ms

    def tree_changes(self, tree: Tree, now_ms: int) -> None:
        """Called with the tree that was in force until now: a new piece begins."""
        self._end_piece(tree, now_ms)

    def result(self, tree: Tree, now_ms: int) -> Entitled:
        """All buckets, the last as far as it is; nothing is changed."""
        entitled = dict(self._entitled)
        self._divide(entitled, tree, now_ms)
        within, total = self._bucket(entitled, now_ms)
        return Entitled(within_gpu_ms=self._within + within, beyond_gpu_ms=self._total + total - self._within - within)

    def _hold(self, budget: BudgetId, pool: PoolId, gpus: int) -> None:
        side = (budget, pool)
        found = self._held.get(side)
        if found is None:
            found = self._held[side] = Integral()
        found.add(self._pyramid.now_ms, gpus)

    def _bucket(self, entitled: dict[Side, int], now_ms: int) -> tuple[int, int]:
        """(within entitlement, all that was held) since the bucket began."""
        within = total = 0
        for side, held in self._held.items():
            amount = held.upto(now_ms) - self._held_before.get(side, 0)
            within += min(amount, entitled.get(side, 0))
            total += amount
        return within, total

    def _end_piece(self, tree: Tree, now_ms: int) -> None:
        self._divide(self._entitled, tree, now_ms)
        for pool in self._pyramid.pools:
            self._schedulable_before[pool] = self._pyramid.schedulable_gpu_ms(pool, now_ms)

    def _divide(self, entitled: dict[Side, int], tree: Tree, now_ms: int) -> None:
        """Add what the piece that ends now gave each node."""
        for pool in self._counted_pools():
            amount = self._pyramid.schedulable_gpu_ms(pool, now_ms) - self._schedulable_before.get(pool, 0)
            if amount:
                for name, part in tree.split_all(amount).items():
                    entitled[name, pool] = entitled.get((name, pool), 0) + part

    def _counted_pools(self) -> Iterable[PoolId]:
        return (pool for pool in self._pyramid.pools if self._scope.has_pool(pool))
