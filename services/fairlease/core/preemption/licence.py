"""What a claim may evict, by the reason that ranked it (decisions.md 3.5-3.8).

Idle work yields to every claim above it. Budgeted work that is past its window yields to a claim
whose side stands below 1 and would, with the new window, still stand more than the margin below the
victim's side (5.2). Where the policy says what is due first, the two leaves count too: who is due more
is shielded from who is not, and gets back what that one holds beyond its due. A debug claim needs no
margin, and may also ask its own leaf's work to leave, but never other work of the lane.
"""

from fairlease.core.fairshare.scales import Node, Scales, outweighs
from fairlease_schemas.cycle import Licence
from fairlease_schemas.ids import BudgetId
from fairlease_schemas.policy import Policy

Signature = tuple[bool, bool, int]
"""Whether idle work may be evicted, whether it is the lane's licence, and the leaves it reaches, as bits."""


class Permit:
    """One claim's licence over budgeted work, asked by the victim's leaf.

    The answers are kept: they depend on leaves, not on attempts. `window_gpu_ms` is the claim's new
    promise, GPUs x window.
    """

    def __init__(
        self,
        scales: Scales,
        leaf: BudgetId,
        licence: Licence,
        *,
        window_gpu_ms: int,
        margin_permille: int,
        window_permille: int = 0,
        due_first_permille: int = 0,
    ) -> None:
        self._scales = scales
        self.leaf = leaf
        self.licence = licence
        self.window_gpu_ms = window_gpu_ms
        self._window_permille = window_permille
        self._due_first_permille = 0 if licence is Licence.DEBUG else due_first_permille
        self._margin_permille = 0 if licence is Licence.DEBUG else margin_permille
        self._known: dict[BudgetId, bool] = {}
        self._signature: Signature | None = None
        self._leaves: tuple[BudgetId, ...] = ()

    @property
    def may_evict_idle(self) -> bool:
        return self.licence is not Licence.IDLE

    def over(self, victim: BudgetId) -> bool:
        """Whether past-window work of that leaf may be asked to leave."""
        found = self._known.get(victim)
        if found is None:
            if self._signature is not None and victim in self._leaves:
                found = bool(self._signature[2] >> self._leaves.index(victim) & 1)
            else:
                found = self._decide(victim)
            self._known[victim] = found
        return found

    def signature(self, leaves: tuple[BudgetId, ...]) -> Signature:
        """The licence as a value, over these leaves: claims with equal ones may evict the same work."""
        if self._signature is None:
            self._leaves = leaves
            self._signature = (self.may_evict_idle, self.licence is Licence.DEBUG, self._bits(leaves))
        return self._signature

    def _bits(self, leaves: tuple[BudgetId, ...]) -> int:
        """`over` of every leaf at once: each pair of sides is compared once, however many leaves lie behind it.

        Leaf by leaf only what those hold that have their due, where ours has not (3.6).
        """
        if self.licence is Licence.IDLE:
            return 0
        is_debug, bits = self.licence is Licence.DEBUG, 0
        for ours, theirs, behind in self._scales.contests(self.leaf, leaves):
            if self._outweighs(ours, theirs):
                bits |= behind
        if is_debug:
            return bits | 1 << leaves.index(self.leaf) if self.leaf in leaves else bits
        own = self._scales.nodes.get(self.leaf)
        due_more, others = self._scales.parted(leaves, self._due_first_permille)
        if own is None or not self._is_due_more(own):
            return bits & ~due_more
        for bit, other in others if own.is_under else ():
            if not bits & bit and self._outweighs(own, other) and self._scales.sides(self.leaf, other.name):
                bits |= bit
        return bits

    def comparison(self, victim: BudgetId) -> tuple[Node, Node] | None:
        """The two sides that rule 5.2 compares, or the leaves where the victim's alone is due more; None within one."""
        sides = self._scales.sides(self.leaf, victim)
        if sides is None:
            return None
        own, other = self._scales.nodes[self.leaf], self._scales.nodes[victim]
        return (own, other) if self._is_shielded(own, other) else sides

    def _new_gpu_ms(self, ours: Node) -> int:
        """The new window as it counts against this side: at most the policy's part of what the side is entitled to."""
        if not self._window_permille:
            return self.window_gpu_ms
        return min(self.window_gpu_ms, ours.entitled * self._window_permille // 1000)

    def _decide(self, victim: BudgetId) -> bool:
        if self.licence is Licence.IDLE:
            return False
        if victim == self.leaf:
            return self.licence is Licence.DEBUG
        sides = self._scales.sides(self.leaf, victim)
        if sides is None:
            return False
        own, other = self._scales.nodes[self.leaf], self._scales.nodes[victim]
        if self._is_shielded(own, other):
            return False
        return self._outweighs(*sides) or (self._is_shielded(other, own) and self._outweighs(own, other))

    def _is_due_more(self, leaf: Node) -> bool:
        """Whether the leaf is due more (3.2), which the lane does not ask."""
        return leaf.is_below(self._due_first_permille)

    def _is_shielded(self, claimant: Node, victim: Node) -> bool:
        """Whether of the two leaves the victim's alone is due more (3.6)."""
        return self._is_due_more(victim) and not self._is_due_more(claimant)

    def _outweighs(self, ours: Node, theirs: Node) -> bool:
        """Whether the side stands low enough for this licence, and rule 5.2 holds."""
        is_low = ours.is_under or self.licence is Licence.DEBUG
        return is_low and outweighs(ours, theirs, self._new_gpu_ms(ours), self._margin_permille)


def permit_for(
    policy: Policy, scales: Scales, leaf: BudgetId, licence: Licence, window_gpu_ms: int, *, is_counted: bool
) -> Permit:
    """The permit of a claim by this policy; its window is new unless it `is_counted` among the promised already."""
    new_gpu_ms = 0 if is_counted else window_gpu_ms
    return Permit(
        scales,
        leaf,
        licence,
        window_gpu_ms=new_gpu_ms,
        margin_permille=policy.margin_permille,
        window_permille=policy.licence_window_permille,
        due_first_permille=policy.due_first_permille,
    )
