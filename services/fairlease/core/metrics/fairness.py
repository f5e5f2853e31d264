"""Fairness: what each leaf was due and what it held (M2).

Due = the integral of min(entitled GPUs, demanded GPUs); demanded = held + waiting that the pools could take and
that is under its caps. Entitled GPUs are a leaf's part of the schedulable GPUs by 2.2's prefix rounding, in
millionths of a GPU, so that siblings sum to their parent. Over several pools a leaf is due the sum of what it is
due in each, and never more than all it demands: work that would take either pool waits in both.

A leaf's rate changes when it gets or frees GPUs, when its demand changes, and, for every leaf, when capacity or
the tree does; the last is put off until time passes, because hosts come and go in bursts.
"""

from collections.abc import Iterable, Mapping

import msgspec

from fairlease.core.budget import Tree
from fairlease.core.metrics.demand import Demand, Sum
from fairlease.core.metrics.integral import PPM, Integral
from fairlease.core.metrics.pyramid import Pyramid
from fairlease.core.metrics.scope import Scope
from fairlease_schemas.cycle import NodeStanding
from fairlease_schemas.ids import BudgetId, PoolId

HIGH_PPM = 950_000


class Fulfilment(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf's figures. Dues are millionths of GPU-milliseconds; the ratio counts no more than 1."""

    held_gpu_ms: int
    due_gpu_ms_ppm: int
    uncapped_due_gpu_ms_ppm: int

    @property
    def ratio_ppm(self) -> int:
        return _fulfilled_ppm(self.held_gpu_ms, self.due_gpu_ms_ppm)

    @property
    def uncapped_ppm(self) -> int:
        return _fulfilled_ppm(self.held_gpu_ms, self.uncapped_due_gpu_ms_ppm)


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """The figures over all leaves with something due; absent where there is none.

    `share_error_ppm` is the largest |standing - 1| of a leaf that never demanded less than it was entitled to.
    """

    by_budget: dict[BudgetId, Fulfilment]
    mean_ppm: int | None
    lowest_ppm: int | None
    at_least_95: int
    uncapped_mean_ppm: int | None
    share_error_ppm: int | None


class _Side:
    """A leaf in one pool, now. `short_ms` is since when it demands less than its part, absent while it does not."""

    __slots__ = ("entitled_ppm", "held", "short_ms", "waits", "was_short")

    def __init__(self, waits: Sum) -> None:
        self.waits = waits
        self.held = 0
        self.entitled_ppm = 0
        self.short_ms: int | None = None
        self.was_short = False

    def note(self, now_ms: int, demanded_ppm: int) -> None:
        """What it demands from now on; once it was short for any time, it was."""
        is_short = demanded_ppm < self.entitled_ppm
        if self.short_ms is not None:
            self.was_short = self.was_short or self.short_ms < now_ms
            if not is_short:
                self.short_ms = None
        elif is_short:
            self.short_ms = now_ms

    def had_less(self, now_ms: int) -> bool:
        """Whether it ever demanded less than its part, up to now."""
        return self.was_short or (self.short_ms is not None and self.short_ms < now_ms)


class _Leaf:
    """A leaf over all its pools: rates now, and their integrals."""

    __slots__ = ("due", "held", "sides", "uncapped")

    def __init__(self) -> None:
        self.sides: dict[PoolId, _Side] = {}
        self.held, self.due, self.uncapped = Integral(), Integral(), Integral()


class Shares:
    """Follows what each leaf holds, demands and is entitled to. `now_ms` of the pyramid is the instant."""

    def __init__(self, pyramid: Pyramid, demand: Demand, scope: Scope) -> None:
        self._pyramid = pyramid
        self._demand = demand
        self._scope = scope
        self._leaves: dict[BudgetId, _Leaf] = {}
        self.is_stale = False
        """Whether capacity or the tree changed: then `settle` comes before time passes."""
        demand.on_leaf.append(self._demand_changed)
        pyramid.on_schedulable.append(self._capacity_changed)

    def hold(self, budget: BudgetId, pool: PoolId, gpus: int) -> None:
        """Budgeted work of the leaf holds so many GPUs more."""
        if not self._scope.has_pool(pool):
            return
        leaf = self._leaf(budget)
        self._side(budget, leaf, pool).held += gpus
        leaf.held.add(self._pyramid.now_ms, gpus)
        self._rate(budget, leaf)

    def settle(self, tree: Tree) -> None:
        """Divide the schedulable GPUs anew."""
        self.is_stale = False
        leaves = dict.fromkeys(tree.leaves())
        for pool in self._pyramid.pools:
            if not self._scope.has_pool(pool):
                continue
            parts = tree.split_all(self._pyramid.schedulable_gpus(pool) * PPM)
            for name in leaves | self._leaves:
                entitled_ppm = parts[name] if name in leaves else 0
                if entitled_ppm or name in self._leaves:
                    self._side(name, self._leaf(name), pool).entitled_ppm = entitled_ppm
        for name, leaf in self._leaves.items():
            self._rate(name, leaf)

    def sums(self) -> tuple[dict[BudgetId, int], dict[BudgetId, int]]:
        """(held, due) in GPU-ms by leaf so far, dues rounded down; a leaf that neither held nor was due is left out."""
        now_ms = self._pyramid.now_ms
        found = {name: (leaf.held.upto(now_ms), leaf.due.upto(now_ms) // PPM) for name, leaf in self._leaves.items()}
        known = {name: both for name, both in sorted(found.items()) if any(both)}
        return {name: held for name, (held, _) in known.items()}, {name: due for name, (_, due) in known.items()}

    def result(self, tree: Tree, standings: Mapping[PoolId, Iterable[NodeStanding]]) -> Fairness:
        """The figures now; `standings` of every pool at this instant, for the share error."""
        now_ms = self._pyramid.now_ms
        counted = {name: leaf for name, leaf in sorted(self._leaves.items()) if self._scope.has_budget(tree, name)}
        by_budget = {
            name: Fulfilment(
                held_gpu_ms=leaf.held.upto(now_ms),
                due_gpu_ms_ppm=leaf.due.upto(now_ms),
                uncapped_due_gpu_ms_ppm=leaf.uncapped.upto(now_ms),
            )
            for name, leaf in counted.items()
            if leaf.uncapped.upto(now_ms) > 0
        }
        ratios = [one.ratio_ppm for one in by_budget.values() if one.due_gpu_ms_ppm]
        uncapped = [one.uncapped_ppm for one in by_budget.values()]
        return Fairness(
            by_budget=by_budget,
            mean_ppm=sum(ratios) // len(ratios) if ratios else None,
            lowest_ppm=min(ratios, default=None),
            at_least_95=sum(ratio >= HIGH_PPM for ratio in ratios),
            uncapped_mean_ppm=sum(uncapped) // len(uncapped) if uncapped else None,
            share_error_ppm=max(self._errors(counted, standings, now_ms), default=None),
        )

    def _errors(
        self, counted: dict[BudgetId, _Leaf], standings: Mapping[PoolId, Iterable[NodeStanding]], now_ms: int
    ) -> Iterable[int]:
        """By leaf and pool |standing - 1|, of those whose demand never fell below what they were entitled to."""
        for pool, nodes in standings.items():
            for node in nodes:
                leaf = counted.get(node.budget)
                side = leaf.sides.get(pool) if leaf is not None else None
                if side is None or side.had_less(now_ms) or not side.entitled_ppm or not node.entitled_gpu_ms:
                    continue
                spent_gpu_ms = node.used_gpu_ms + node.promised_gpu_ms
                yield abs(spent_gpu_ms - node.entitled_gpu_ms) * PPM // node.entitled_gpu_ms

    def _capacity_changed(self, _pool: PoolId) -> None:
        self.is_stale = True

    def _demand_changed(self, budget: BudgetId, pool: PoolId) -> None:
        if self._scope.has_pool(pool):
            leaf = self._leaf(budget)
            self._side(budget, leaf, pool)
            self._rate(budget, leaf)

    def _rate(self, budget: BudgetId, leaf: _Leaf) -> None:
        """The leaf's rates from now on."""
        now_ms = self._pyramid.now_ms
        within = capped = held = due = uncapped = 0
        for side in leaf.sides.values():
            waits = side.waits
            demanded_ppm = (side.held + waits.within) * PPM
            side.note(now_ms, demanded_ppm)
            entitled_ppm = side.entitled_ppm
            due += min(entitled_ppm, demanded_ppm)
            uncapped += min(entitled_ppm, demanded_ppm + waits.capped * PPM)
            held, within, capped = held + side.held, within + waits.within, capped + waits.capped
        if len(leaf.sides) > 1:  # what would take either of two pools waits in both, and is one demand
            waits = self._demand.anywhere(budget)
            within, capped = min(within, waits.within), min(capped, waits.capped)
            due = min(due, (held + within) * PPM)
            uncapped = min(uncapped, (held + within + capped) * PPM)
        if due != leaf.due.value:
            leaf.due.set(now_ms, due)
        if uncapped != leaf.uncapped.value:
            leaf.uncapped.set(now_ms, uncapped)

    def _leaf(self, budget: BudgetId) -> _Leaf:
        found = self._leaves.get(budget)
        if found is None:
            found = self._leaves[budget] = _Leaf()
        return found

    def _side(self, budget: BudgetId, leaf: _Leaf, pool: PoolId) -> _Side:
        found = leaf.sides.get(pool)
        if found is None:
            found = leaf.sides[pool] = _Side(self._demand.of_leaf(budget, pool))
        return found


def _fulfilled_ppm(held_gpu_ms: int, due_gpu_ms_ppm: int) -> int:
    """min(1, held / due) in parts per million; 1 where nothing is due."""
    if not due_gpu_ms_ppm:
        return PPM
    return min(PPM, held_gpu_ms * PPM * PPM // due_gpu_ms_ppm)
