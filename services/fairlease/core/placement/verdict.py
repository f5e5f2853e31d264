"""Why a pick that may evict waits: windows, the brake, standing, or simply no room (decisions.md 9.1).

Room says first what is plainly so (no such hosts, maintenance, kept for another). Then, for claims
that may evict:

1. `protected-windows`: its licence would be enough, were the windows there over; until when;
2. `thrash-brake`: the same, and it is exemptions alone that stand in the way;
3. `window-overshare`: it would be enough, had it the standing; with both standings;
4. `fragmentation` or `capacity`: nothing it could ever evict makes room.

The code is found for every class in every cycle, so its parts are kept: what the licence allows by shape
and licence, what standing could by shape and leaf. The evidence is made only when a reason begins.
"""

from collections.abc import Hashable

import msgspec

from fairlease.core.fairshare.scales import Node
from fairlease.core.placement.blocks import most_together
from fairlease.core.placement.fit import NOBODY, Room, is_short
from fairlease.core.placement.shape import Shape
from fairlease.core.preemption.licence import Permit, Signature
from fairlease.core.preemption.occupancy import MayLeave, Occupancy, Tenant, is_evictable, is_licensed
from fairlease.core.preemption.promise import soonest
from fairlease.core.stay import Kind
from fairlease_schemas.cycle import Licence
from fairlease_schemas.ids import HostId
from fairlease_schemas.reasons import Evidence, Reason

PLAIN = frozenset((Reason.CONSTRAINT_CONFLICT, Reason.HOST_MAINTENANCE, Reason.HOST_FAULT, Reason.RESERVATION))


class Verdicts:
    """Verdicts of one step over one pool. Room shrinks in a step, so they are forgotten when it does."""

    def __init__(self, room: Room, occupancy: Occupancy) -> None:
        self._room = room
        self.occupancy = occupancy
        self._known: dict[Hashable, bool] = {}
        self._codes: dict[Hashable, Reason] = {}
        self._version = room.version

    def code(self, shape: Shape, job: str, permit: Permit) -> Reason:
        """The reason alone; with a promise, what protects its hosts, not for whom others might be kept."""
        promise = self._room.promise_to(job)
        if promise is not None:
            protected = [t for host in promise.hosts for t in self.occupancy.at(host) if _is_protected(t)]
            is_brake = bool(protected) and all(tenant.is_exempt for tenant in protected)
            return Reason.THRASH_BRAKE if is_brake else Reason.PROTECTED_WINDOWS
        plain, facts = self._room.verdict(shape, job)
        # What is spare (3.1) nobody gives back: who could make room elsewhere waits for that, and may be promised it.
        is_spare = plain is Reason.RESERVATION and facts.claim == NOBODY
        if (plain in PLAIN and not is_spare) or not permit.may_evict_idle:
            return plain
        if self._version != self._room.version:
            self._known.clear()
            self._codes.clear()
            self._version = self._room.version
        return self._code(shape, plain, permit)

    def evidence(self, code: Reason, shape: Shape, job: str, permit: Permit) -> Evidence:
        """The numbers of a reason that begins."""
        plain = self._room.verdict(shape, job)[1]
        promise = self._room.promise_to(job)
        if promise is not None:
            return msgspec.structs.replace(plain, for_ms=max(0, promise.start_ms - self._room.now_ms))
        if code in (Reason.PROTECTED_WINDOWS, Reason.THRASH_BRAKE):
            promised = soonest(self.occupancy, self._room, shape, permit, job)
            if promised is not None:
                return msgspec.structs.replace(plain, for_ms=promised.start_ms - self._room.now_ms)
        if code is Reason.WINDOW_OVERSHARE:
            return self._overshare(plain, permit)
        if code is Reason.RESERVATION:
            return self._room.kept_for(plain)
        return plain

    def waits_for_stops(self, shape: Shape, permit: Permit) -> bool:
        """Whether those who are leaving already make the room, beside whom the claim may evict now."""
        licence = permit.signature(self.occupancy.leaves)
        if self._is_possible(shape, ("evictable", licence), lambda tenant: is_evictable(permit, tenant)):
            return False
        return self._is_near(shape, permit, licence)

    def _is_near(self, shape: Shape, permit: Permit, licence: Signature) -> bool:
        """Whether those whom the claim may evict now, and those who are stopping, make the room together."""
        return self._is_possible(shape, ("now", licence), lambda t: t.is_stopping or is_evictable(permit, t))

    def _code(self, shape: Shape, plain: Reason, permit: Permit) -> Reason:
        """The reason of a claim that may evict, asked once for a shape, licence and side while the room is as it is."""
        side = (permit.leaf, permit.licence is Licence.DEBUG)
        licence = permit.signature(self.occupancy.leaves)
        key = (shape, licence, side, plain)
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = self._found(shape, plain, permit, licence, side)
        return found

    def _found(self, shape: Shape, plain: Reason, permit: Permit, licence: Signature, side: tuple[str, bool]) -> Reason:
        def licensed(tenant: Tenant | Kind) -> bool:
            return is_licensed(permit, tenant)

        def but_for_brake(tenant: Tenant | Kind) -> bool:
            return licensed(tenant) and (tenant.is_exempt or not _is_protected(tenant))

        def any_side(tenant: Tenant | Kind) -> bool:
            is_out_of_reach = tenant.leaf == permit.leaf or (tenant.is_lane and permit.licence is Licence.DEBUG)
            return tenant.is_idle or tenant.is_stopping or not is_out_of_reach

        if self._is_possible(shape, ("licensed", licence), licensed):
            if not self._is_possible(shape, ("exempt", licence), but_for_brake):
                return Reason.PROTECTED_WINDOWS
            # Who may evict now and waits for its turn to (5.6), or for those who are leaving, waits for room.
            return plain if self._is_near(shape, permit, licence) else Reason.THRASH_BRAKE
        if self._is_possible(shape, ("sides", side), any_side):
            return Reason.WINDOW_OVERSHARE
        if self._is_possible(shape, ("licensed", licence), licensed, is_all=True):
            return Reason.RESERVATION
        if self._is_possible(shape, ("sides", side), any_side, is_all=True):
            return Reason.WINDOW_OVERSHARE
        return plain

    def _is_possible(self, shape: Shape, rule: Hashable, may_leave: MayLeave, *, is_all: bool = False) -> bool:
        """Whether enough hosts could ever be free enough, were all that `may_leave` by that rule gone.

        Open hosts, or with `is_all` those kept, promised or closed too. Asked once while the room is as it is.
        """
        places = self.occupancy.able(self._room, shape, rule, may_leave, is_all=is_all)
        if places is not None:
            return places.bit_count() >= shape.hosts
        key = (shape, rule, is_all)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._is_freed(shape, may_leave, is_all=is_all)
        return found

    def _is_freed(self, shape: Shape, may_leave: MayLeave, *, is_all: bool) -> bool:
        """The same, by a look at each host."""
        room = self._room
        able: list[HostId] = []
        for host in room.free:
            if not (is_all or room.is_open(host)) or not shape.suits(host, room.size[host]):
                continue
            missing = room.lack(host, shape)
            for tenant in self.occupancy.at(host):
                if not is_short(missing):
                    break
                if may_leave(tenant):
                    missing = room.eased(missing, host, tenant.gpus_on[host], tenant.sizes)
            if not is_short(missing):
                able.append(host)
                if len(able) >= shape.hosts and not shape.is_same_block:
                    return True
        return most_together(able, room.block, is_same_block=shape.is_same_block) >= shape.hosts

    def _overshare(self, plain: Evidence, permit: Permit) -> Evidence:
        """The comparison that standing lost by least: against the side that stands highest."""
        worst: tuple[int, str] | None = None
        sides: tuple[Node, Node] | None = None
        for leaf in self.occupancy.leaves:
            found = permit.comparison(leaf)
            if found is None or permit.over(leaf):
                continue
            rank = (-found[1].permille, found[1].name)
            if worst is None or rank < worst:
                worst, sides = rank, found
        if sides is None:
            return msgspec.structs.replace(plain, level=permit.leaf)
        ours, theirs = sides
        return msgspec.structs.replace(
            plain,
            level=ours.name,
            standing_permille=(ours.spent + permit.window_gpu_ms) * 1000 // ours.entitled if ours.entitled else 0,
            other=theirs.name,
            other_permille=theirs.permille,
        )


def _is_protected(tenant: Tenant | Kind) -> bool:
    return not (tenant.is_idle or tenant.is_past or tenant.is_stopping)
