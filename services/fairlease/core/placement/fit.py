"""Room in one pool, and where a request fits in it.

Below one host: best fit, on the fullest host that takes it. A gang takes whole hosts, inside the
smallest topology block that has enough of them, else over as few blocks as possible. Every choice
ends in the host id. Hosts with a hold, and hosts kept for someone else, have no room.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable

import msgspec

from fairlease.core.fleet import listed, outermost
from fairlease.core.host import FAULT_KINDS
from fairlease.core.job import Job
from fairlease.core.line import class_key
from fairlease.core.placement.blocks import most_together, together
from fairlease.core.placement.shape import Shape, shape_of
from fairlease.core.placement.sides import NONE, Sides, Sizes
from fairlease.core.state import Promise
from fairlease.core.world import World
from fairlease_schemas.cycle import Licence, Part
from fairlease_schemas.ids import HostId, JobId, PoolId
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason

NOBODY: JobId = ""
"""Whose the spare hosts are (3.1): whoever comes of those who may have them."""

Lack = tuple[int, ...]
"""What a host is short of for one host's part: GPUs, and where they matter CPU cores, memory and disk MiB."""


class _Facts(msgspec.Struct, frozen=True):
    """What a verdict on a shape is made of.

    `is_known` when the pool's hosts could take it, were they empty; `is_unheld` when those could that nobody holds or
    drains; `is_kept` when it would fit now if no host were kept, promised or closed (a drain is nobody's reservation).
    """

    evidence: Evidence
    is_known: bool
    is_unheld: bool
    is_kept: bool


class Room:
    """Free GPUs of a pool while a step decides; taking room is private to the step.

    Hosts kept for another job, or claimed by a better pick (4.2), take nobody. Promised hosts take only
    what is gone before the promise begins: contract backfill (6.3).
    """

    def __init__(self, world: World, pool: PoolId, now_ms: int) -> None:
        self.pool = pool
        self.now_ms = now_ms
        self.version = 0
        self.sides = Sides(world, pool)
        self._world = world
        self._shapes: dict[str, Shape] = {}
        self._plain: dict[tuple[int, int, bool], Shape] = {}
        self._full: set[Shape] = set()
        self.frame = world.fleet.frame(pool)
        shelf = world.fleet.shelf(pool)
        self.free = dict(shelf.free)
        self.size, self.block = shelf.size, shelf.block
        self.held_out = list(shelf.held)
        self._closing = dict(shelf.closing)
        for name in [name for name, closes_ms in shelf.closing.items() if closes_ms <= now_ms]:
            self.held_out.append(name)
            del self.free[name], self._closing[name]
        self.has_faults = any(
            hold.kind in FAULT_KINDS for name in self.held_out for hold in world.fleet.hosts[name].holds
        )
        self._begun = {free: list(hosts) for free, hosts in shelf.begun.items()}
        self._empty = {
            size: {name: list(hosts) for name, hosts in blocks.items()} for size, blocks in shelf.empty.items()
        }
        self._is_view = False
        self._places: dict[tuple[int, int, bool], int] = {}
        self._places_version = 0
        self._holes_version = self._sum_version = -1
        self._sum: tuple[Evidence, dict[tuple[int, int], int]] = (Evidence(), {})
        self._open_holes: list[tuple[HostId, int]] = []
        self._verdicts: dict[Shape, tuple[Reason, Evidence]] = {}
        self._kept: dict[HostId, JobId] = {}
        self._closed: dict[JobId, int] = {}
        self._reserved: dict[JobId, int] = {}
        self._parts_of: set[JobId] = set()
        self._keeping: dict[JobId, tuple[HostId, ...]] = {}
        for reservation in world.reservations.values():
            if reservation.pool == pool and now_ms < reservation.expires_ms:
                self._reserved[reservation.job] = reservation.expires_ms
                self._keeping[reservation.job] = reservation.hosts
                if reservation.is_part:
                    self._parts_of.add(reservation.job)
                for name in reservation.hosts:
                    self._kept[name] = reservation.job
        promised: dict[HostId, Promise] = {}
        for promise in world.promises.values():
            if promise.pool == pool:
                # What a fault left of a gang (7.7) is kept beside what it is promised, and counts with it.
                self._keeping[promise.job] = tuple(dict.fromkeys((*promise.hosts, *self._keeping.get(promise.job, ()))))
                for name in promise.hosts:
                    promised[name] = promise
        kept, self._kept, self._promised = self._kept, {}, {}
        for name in dict.fromkeys((*kept, *promised)):
            self._unlist(name)
        self.spares_wanted = 0 if world.policy is None else self._spares_wanted(world.policy)
        self._yield_hosts = 0 if world.policy is None else world.policy.spare_yield_hosts
        self.spare = self._spares(self.spares_wanted)
        for name in self.spare:
            self._unlist(name)
            kept[name] = NOBODY
        self._kept, self._promised = kept, promised

    def _spares_wanted(self, policy: Policy) -> int:
        """How many empty hosts of the pool are for the lane (3.1), if there are so many.

        Never more than half of those without a hold, nor one that a gang in line cannot do without.
        """
        most = min(policy.debug_spare_hosts, len(self.free) // 2)
        if most == 0:
            return 0
        sound = Counter(self.size[host] for host in self.free)
        gangs = (of.sample.request for of in self._world.line.classes.values() if self.pool in of.sample.pools)
        left = [sound[gang.gpus_per_host] - gang.hosts for gang in gangs if gang.hosts > 1]
        return min([most, *(hosts for hosts in left if hosts >= 0)])

    def _spares(self, count: int) -> list[HostId]:
        """So many empty hosts are for the lane, gangs that lost one to a fault (7.7) and large ones alone (3.1).

        Of the largest, from where fewest are empty, by id.
        """
        if not count:
            return []
        found: list[HostId] = []
        for size in sorted(self._empty, reverse=True):
            for _, name in sorted((len(hosts), name) for name, hosts in self._empty[size].items()):
                found += self._empty[size][name]
        return found[:count]

    def shape(self, job: Job) -> Shape:
        """What the job asks of hosts here."""
        request = job.request
        if request.constraints is None:
            asked_for = (request.hosts, request.gpus_per_host, request.has_sizes)
            shape = self._plain.get(asked_for)
            if shape is None:
                shape = shape_of(self._world, self.pool, request)
                if not request.has_sizes:
                    self._plain[asked_for] = shape
            return shape
        key = class_key(job)
        if key not in self._shapes:
            self._shapes[key] = shape_of(self._world, self.pool, job.request)
        return self._shapes[key]

    def is_told_by_gpus(self, shape: Shape) -> bool:
        """Whether free GPUs say everything of where it fits: it asks for nothing else, and nobody there did."""
        is_plain = shape.among is None and shape.sizes == NONE and not shape.is_same_block
        return is_plain and not self._is_view and not self.sides.are_asked

    def places(self, shape: Shape, *, is_all: bool) -> int:
        """The hosts that could take a part of the gang when empty, as bits of the frame.

        Open ones, or with `is_all` every one without a hold.
        """
        if self._places_version != self.version:
            self._places.clear()
            self._places_version = self.version
        key = (min(shape.hosts, 2), shape.gpus_per_host, is_all)
        found = self._places.get(key)
        if found is None:
            frame, wanted = self.frame, shape.gpus_per_host
            suiting = 0
            for size, places in frame.by_size.items():
                if size == wanted or (shape.hosts == 1 and size > wanted):
                    suiting |= places
            open_places = self._places.get((0, 0, is_all))
            if open_places is None:
                shut = (*self.held_out,) if is_all else (*self.held_out, *self._kept, *self._promised, *self._closing)
                open_places = frame.whole
                for host in shut:
                    if host in frame.places:
                        open_places &= ~frame.bits[frame.places[host]]
                self._places[0, 0, is_all] = open_places
            found = self._places[key] = suiting & open_places
        return found

    def lack(self, host: HostId, shape: Shape) -> Lack:
        """What is missing there for one host's part of the gang; nothing below 1 is missing."""
        gpus = shape.gpus_per_host - len(self.free[host])
        if not self.sides.matter(host, shape.sizes):
            return (gpus,)
        return (gpus, *self.sides.lack(host, shape.gpus_per_host, shape.sizes))

    def eased(self, lack: Lack, host: HostId, gpus: int, sizes: Sizes) -> Lack:
        """What is still missing there once somebody with so many GPUs and such sizes has left; none is below zero."""
        if len(lack) == 1:
            return (max(0, lack[0] - gpus),)
        held = (gpus, *self.sides.part(host, gpus, sizes))
        return tuple(max(0, missing - freed) for missing, freed in zip(lack, held, strict=True))

    def is_full(self, shape: Shape, job: JobId, licence: Licence | None = None) -> bool:
        """Whether it is known by now that `find` finds nothing, for any length of time; False where it is not known."""
        return (
            shape in self._full
            and job not in self._keeping
            and not (self.spare and self._is_let_into_spare(licence, shape))
        )

    def find(self, shape: Shape, job: JobId, needs_ms: int, licence: Licence | None = None) -> tuple[Part, ...] | None:
        """The parts that the gang would get, in rank order of its hosts; None when it does not fit.

        1. Hosts reserved for the job or promised to it, by themselves, when they are free and no drain closes them
           before `needs_ms` is over: a drain's start binds whoever a host is kept for (7.2);
        2. open hosts: best fit, or the smallest block;
        3. open hosts with those kept for it after a fault (7.7), and the spare ones;
        4. open and promised hosts together, where `needs_ms` (protection, grace and stop margin) is over before the
           promise begins;
        5. for who may have them by its `licence`, the spare hosts too (3.1).
        """
        own: list[HostId] = []
        if job in self._keeping:
            own = [h for h in self._keeping[job] if h in self.free and not self.closes_within(h, needs_ms)]
        if own:
            found = self._fit(shape, own)
            if found is not None:
                return found
        if shape.hosts == 1:
            host = self._fullest(shape)
            if host is None and self._has_holes:
                host = next(iter(self._holes(shape, needs_ms)), None)
            if host is None and self._is_let_into_spare(licence, shape):
                host = next(iter(self._spare_room(shape)), None)
            if host is None:
                self._note_full(shape, job)
            return None if host is None else (self._part(host, shape),)
        whole = self._whole_hosts(shape)
        chosen = self._together(whole, shape)
        if chosen is None and job in self._parts_of:
            part = (h for h in own if self.has_room(h, shape))
            chosen = self._together(sorted({*whole, *part, *self._spare_room(shape)}), shape)
        if chosen is None and self._has_holes:
            chosen = self._together(sorted(whole + self._holes(shape, needs_ms)), shape)
        if chosen is None and self._is_let_into_spare(licence, shape):
            chosen = self._together(sorted({*whole, *self._spare_room(shape)}), shape)
        if chosen is None:
            self._note_full(shape, job)
        return None if chosen is None else tuple(self._part(host, shape) for host in chosen)

    def _note_full(self, shape: Shape, job: JobId) -> None:
        """Nothing was found: neither is it for another while this room is as it is, if no hole could ever serve."""
        if job not in self._keeping and not (self._has_holes and self._holes(shape, -self.now_ms)):
            self._full.add(shape)

    def take(self, parts: Iterable[Part], job: JobId, sizes: Sizes) -> None:
        """The parts are granted to the job; what else was kept for it is open again."""
        self._verdicts.clear()
        self._full.clear()
        self.version += 1
        for part in parts:
            if self._is_spare(part.host):
                del self._kept[part.host]
                self._list(part.host)
            self._unlist(part.host)
            taken = set(part.gpus)
            self.free[part.host] = [index for index in self.free[part.host] if index not in taken]
            self.sides.take(part.host, len(taken), sizes)
            self._list(part.host)
        self._reopen(job)

    def close(self, hosts: Iterable[HostId], claim: JobId, until_ms: int = 0) -> None:
        """Nobody gets anything on these hosts for the rest of this step: a better pick claims them until then."""
        self._verdicts.clear()
        self._full.clear()
        self.version += 1
        for host in hosts:
            self._unlist(host)
            self._kept[host] = claim
        self._closed[claim] = until_ms

    def can_take(self, shape: Shape) -> bool:
        """Whether the hosts without a hold could take the gang, were they empty (2.10)."""
        return self._is_enough([host for host in self.free if shape.suits(host, self.size[host])], shape)

    def is_open(self, host: HostId, job: JobId = "") -> bool:
        """Whether anybody may be placed there at any length: no hold, not kept, not promised, not closed.

        What a fault left a job of its gang is open to that job.
        """
        if host not in self.free or host in self._promised or host in self._closing:
            return False
        return host not in self._kept or (job in self._parts_of and self._kept[host] == job)

    def open_holes(self) -> dict[HostId, int]:
        """Open hosts with work and room beside it, by id: how many GPUs are free there."""
        begun = ((host, free) for free, hosts in self._begun.items() if free for host in hosts)
        return dict(sorted(begun))

    def has_empty(self, shape: Shape, below: int) -> bool:
        """Whether there is an open empty host with fewer GPUs than that which one part of the shape fits on."""
        return any(
            self.has_room(host, shape)
            for size, blocks in self._empty.items()
            if shape.gpus_per_host <= size < below
            for hosts in blocks.values()
            for host in hosts
        )

    def _is_let_into_spare(self, licence: Licence | None, shape: Shape) -> bool:
        """Whether the spare hosts (3.1) are for such a pick: the lane, or so large a gang that they yield to it."""
        if licence is Licence.DEBUG:
            return True
        is_large = 0 < self._yield_hosts <= shape.hosts
        return is_large and licence is not None and licence is not Licence.IDLE

    def _is_spare(self, host: HostId) -> bool:
        """Whether the host is kept for the lane, and nobody has begun there."""
        return self._kept.get(host) == NOBODY

    def _spare_room(self, shape: Shape) -> list[HostId]:
        """The spare hosts on which nobody has begun and a part of the shape fits, in their order."""
        return [host for host in self.spare if self._is_spare(host) and self.has_room(host, shape)]

    def closes_within(self, host: HostId, length_ms: int) -> bool:
        """Whether a drain begins there before so long is over (7.2)."""
        return host in self._closing and self.now_ms + length_ms > self._closing[host]

    def is_promisable(self, host: HostId, job: JobId) -> bool:
        """Whether the host may be promised to the job: open, or its own by promise already."""
        promise = self._promised.get(host)
        if host not in self.free or host in self._closing or (promise is not None and promise.job != job):
            return False
        return host not in self._kept or (job in self._parts_of and self._kept[host] == job)

    def has_part(self, job: JobId) -> bool:
        """Whether a fault left the job hosts that are kept for it here."""
        return job in self._parts_of

    def promise_to(self, job: JobId) -> Promise | None:
        """What the job is promised here, if anything."""
        if job not in self._keeping:
            return None
        return next((promise for promise in self._promised.values() if promise.job == job), None)

    def only(self, hosts: Iterable[HostId]) -> "Room":
        """A view of these hosts alone, all of them open, for a claim whose hosts they are."""
        view = object.__new__(Room)
        view.__dict__.update(self.__dict__)
        view._is_view, view._holes_version, view._full = True, -1, set()
        view.free = {host: self.free[host] for host in hosts if host in self.free}
        view.sides = self.sides.copy()
        view._kept, view._promised = {}, {}
        return view

    def leave(self, host: HostId, gpus: int, sizes: Sizes) -> None:
        """As if somebody had left already: which of the GPUs these are nobody knows here. For a view only."""
        self.free[host] = self.free[host] + [-1] * gpus
        self.sides.give(host, gpus, sizes)

    def verdict(self, shape: Shape, job: JobId) -> tuple[Reason, Evidence]:
        """Why the gang does not fit here, with the numbers (decisions.md 9.1)."""
        if job in self._reserved and job not in self._parts_of:
            return self._verdict(shape, job)
        found = self._verdicts.get(shape)
        if found is None:
            found = self._verdicts[shape] = self._verdict(shape, job)
        return found

    def _verdict(self, shape: Shape, job: JobId) -> tuple[Reason, Evidence]:
        facts = self._summed(shape) if self.is_told_by_gpus(shape) else self._looked_at(shape)
        evidence = facts.evidence
        if not facts.is_known:
            return Reason.CONSTRAINT_CONFLICT, evidence
        if not facts.is_unheld:
            return (Reason.HOST_FAULT if self.has_faults else Reason.HOST_MAINTENANCE), evidence
        if job in self._reserved and job not in self._parts_of:
            for_ms = self._reserved[job] - self.now_ms
            return Reason.RESERVATION, msgspec.structs.replace(evidence, claim=job, for_ms=for_ms)
        if facts.is_kept:
            return Reason.RESERVATION, self.kept_for(evidence)
        return (Reason.FRAGMENTATION if evidence.free_gpus >= shape.gpus else Reason.CAPACITY), evidence

    def _looked_at(self, shape: Shape) -> "_Facts":
        """The facts about any shape, by a look at each host."""
        fitting = [h for h, size in self.size.items() if shape.suits(h, size)]
        asked = fitting if shape.among is not None else list(self.size)
        open_hosts = [h for h in asked if self.is_open(h)]
        whole = [h for h in open_hosts if len(self.free[h]) == self.size[h]]
        able = [h for h in self.free if h not in self._closing and self.has_room(h, shape)]
        return _Facts(
            evidence=Evidence(
                pool=self.pool,
                needed_gpus=shape.gpus,
                needed_hosts=shape.hosts,
                free_gpus=sum(len(self.free[h]) for h in open_hosts),
                whole_free_hosts=most_together(whole, self.block, is_same_block=shape.is_same_block),
                largest_hole_gpus=max((len(self.free[h]) for h in open_hosts), default=0),
                reserved_hosts=len(self._kept.keys() | self._promised.keys()),
                held_gpus=sum(self.size[h] for h in (*self.held_out, *self._closing)),
            ),
            is_known=self._is_enough(fitting, shape),
            is_unheld=self._is_enough([h for h in fitting if h in self.free and h not in self._closing], shape),
            is_kept=bool(self._kept or self._promised) and self._is_enough(able, shape),
        )

    def _summed(self, shape: Shape) -> "_Facts":
        """The same about a shape that asks for GPUs alone, by how many hosts there are of each size and room."""
        if self._sum_version != self.version:
            self._sum_version = self.version
            self._sum = self._counted()
        evidence, unheld = self._sum
        wanted, least = shape.gpus_per_host, shape.hosts

        def suits(size: int) -> bool:
            return size == wanted if least > 1 else size >= wanted

        known = sum([places.bit_count() for size, places in self.frame.by_size.items() if suits(size)])
        present = able = 0
        for (size, free), hosts in unheld.items():
            if suits(size):
                present += hosts
                able += hosts if free >= wanted else 0
        return _Facts(
            evidence=msgspec.structs.replace(evidence, needed_gpus=shape.gpus, needed_hosts=least),
            is_known=known >= least,
            is_unheld=present >= least,
            is_kept=bool(self._kept or self._promised) and able >= least,
        )

    def _counted(self) -> tuple[Evidence, dict[tuple[int, int], int]]:
        """What an evidence says of the pool, and how many hosts without hold and drain have that size and free GPUs."""
        unheld: dict[tuple[int, int], int] = {}
        free_gpus = whole = largest = 0
        for host, gpus in self.free.items():
            if host in self._closing:
                continue
            size, free = self.size[host], len(gpus)
            unheld[size, free] = unheld.get((size, free), 0) + 1
            if free and host not in self._kept and host not in self._promised:
                free_gpus, whole, largest = free_gpus + free, whole + (free == size), max(largest, free)
        evidence = Evidence(
            pool=self.pool,
            free_gpus=free_gpus,
            whole_free_hosts=whole,
            largest_hole_gpus=largest,
            reserved_hosts=len(self._kept.keys() | self._promised.keys()),
            held_gpus=sum(self.size[h] for h in (*self.held_out, *self._closing)),
        )
        return evidence, unheld

    def _is_enough(self, hosts: list[HostId], shape: Shape) -> bool:
        return most_together(hosts, self.block, is_same_block=shape.is_same_block) >= shape.hosts

    def _together(self, hosts: list[HostId], shape: Shape) -> list[HostId] | None:
        """The gang's hosts among these, or None."""
        if len(hosts) < shape.hosts:
            return None
        return together(hosts, shape.hosts, self.block, is_same_block=shape.is_same_block)

    def _fit(self, shape: Shape, hosts: list[HostId]) -> tuple[Part, ...] | None:
        """The gang on these hosts alone, in their order."""
        able = [h for h in hosts if self.has_room(h, shape)]
        if not self._is_enough(able, shape):
            return None
        chosen = self._together(able, shape) if shape.is_same_block else able[: shape.hosts]
        return None if chosen is None else tuple(self._part(host, shape) for host in chosen)

    def has_room(self, host: HostId, shape: Shape) -> bool:
        """Whether one host's part of the gang fits there now."""
        if not shape.suits(host, self.size[host]):
            return False
        if shape.hosts > 1 and len(self.free[host]) != self.size[host]:
            return False
        return not is_short(self.lack(host, shape))

    def _holes(self, shape: Shape, needs_ms: int) -> list[HostId]:
        """Promised and soon draining hosts with room, where that length is over in time; fullest first, then by id."""
        ends_ms = self.now_ms + needs_ms
        able = [
            (len(self.free[host]), host)
            for host, until_ms in self._hole_ends()
            if ends_ms <= until_ms and self.has_room(host, shape)
        ]
        return [host for _, host in sorted(able)]

    @property
    def _has_holes(self) -> bool:
        return bool((self._closing or self._promised) and self._hole_ends())

    def _hole_ends(self) -> list[tuple[HostId, int]]:
        """Promised and soon draining hosts with a free GPU that nobody else has, each with the end of its hole."""
        if self._holes_version != self.version:
            self._holes_version = self.version
            closes_ms = dict(self._closing)
            for host, promise in self._promised.items():
                closes_ms[host] = min(promise.start_ms, closes_ms.get(host, promise.start_ms))
            self._open_holes = [
                (host, until_ms)
                for host, until_ms in closes_ms.items()
                if host not in self._kept and self.free.get(host)
            ]
        return self._open_holes

    def _fullest(self, shape: Shape) -> HostId | None:
        """The open host with room and the fewest free GPUs; an empty one only where no begun one takes it."""
        gpus = shape.gpus_per_host
        for free in sorted(self._begun.keys() | self._empty.keys()):
            if free < gpus:
                continue
            begun = next((h for h in self._begun.get(free, ()) if self.has_room(h, shape)), None)
            if begun is not None:
                return begun
            blocks = self._empty.get(free, {})
            if shape.among is not None:
                suit = {name: [h for h in members if h in shape.among] for name, members in blocks.items()}
                blocks = {name: members for name, members in suit.items() if members}
            if blocks:  # the one that has fewest of them: larger blocks stay whole for gangs (4.3)
                return min((len(members), name, members[0]) for name, members in blocks.items())[2]
        return None

    def _whole_hosts(self, shape: Shape) -> list[HostId]:
        gpus = shape.gpus_per_host
        return [h for members in self._empty.get(gpus, {}).values() for h in members if shape.suits(h, gpus)]

    def _part(self, host: HostId, shape: Shape) -> Part:
        return Part(host=host, gpus=tuple(self.free[host][: shape.gpus_per_host]))

    def _reopen(self, job: JobId) -> None:
        """What was kept for the job is open again: it has its GPUs."""
        self._reserved.pop(job, None)
        self._closed.pop(job, None)
        self._keeping.pop(job, None)
        self._parts_of.discard(job)
        kept = [host for host, owner in self._kept.items() if owner == job]
        promised = [host for host, promise in self._promised.items() if promise.job == job]
        for host in kept:
            del self._kept[host]
        for host in promised:
            del self._promised[host]
        for host in dict.fromkeys((*kept, *promised)):
            self._list(host)

    def kept_for(self, evidence: Evidence) -> Evidence:
        """The evidence with the one that comes first of those the hosts are kept for, and for how long at most.

        It names nobody where all of them are spare.
        """
        ends = {(promise.start_ms, promise.job) for promise in self._promised.values()}
        ends |= {
            (self._reserved.get(claim) or self._closed.get(claim, 0), claim)
            for claim in self._kept.values()
            if claim != NOBODY
        }
        until_ms, claim = min(ends, default=(0, ""))
        return msgspec.structs.replace(evidence, claim=claim, for_ms=max(0, until_ms - self.now_ms))

    def _listed(self, host: HostId) -> list[HostId]:
        return listed(self._begun, self._empty, len(self.free[host]), self.size[host], self.block[host])

    def _list(self, host: HostId) -> None:
        if self.is_open(host):
            insort(self._listed(host), host)

    def _unlist(self, host: HostId) -> None:
        if not self.is_open(host):
            return
        listed = self._listed(host)
        at = bisect_left(listed, host)
        if at < len(listed) and listed[at] == host:
            del listed[at]
        if not listed and len(self.free[host]) == self.size[host]:
            del self._empty[self.size[host]][outermost(self.block[host])]


def is_short(lack: Lack) -> bool:
    """Whether anything is missing."""
    return max(lack) > 0
