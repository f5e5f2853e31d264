"""What is kept of live attempts between steps is what a fold from a snapshot makes anew, behind every record."""

import gc
import random
from functools import partial
from pathlib import Path

import pytest

from fairlease.core.fairshare.next_pick import Picker
from fairlease.core.fairshare.standing import standings
from fairlease.core.fleet import LANE_BITS, Frame
from fairlease.core.host import Host
from fairlease.core.placement import place
from fairlease.core.placement.fit import Room
from fairlease.core.placement.place import kept_first, permit_of
from fairlease.core.placement.shape import Shape
from fairlease.core.preemption.licence import Permit
from fairlease.core.preemption.occupancy import Occupancy, is_evictable, is_licensed, occupancy, tenant_of
from fairlease.core.state import RANKED
from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.host import Inventory

LOGS = sorted((Path(__file__).parents[1] / "golden").glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_is_kept_is_what_would_be_made_anew(path: Path) -> None:
    world = World()
    for position, line in enumerate(path.read_bytes().splitlines(), 1):
        world.apply(codec.read_record(line), position)
        policy, now_ms = world.policy, world.log_time_ms
        if policy is None or position % 3:
            continue
        fresh = World.load(world.dump())
        for pool in world.fleet.pools():
            kept, anew = world.tenure(policy, pool, now_ms), fresh.tenure(policy, pool, now_ms)
            assert (kept.held, kept.gpus, kept.apart, kept.leaves) == (anew.held, anew.gpus, anew.apart, anew.leaves)
            assert dict(kept.promised_gpu_ms()) == dict(anew.promised_gpu_ms())
            assert standings(world, pool, now_ms) == standings(fresh, pool, now_ms)
            assert world.fleet.shelf(pool).free == fresh.fleet.shelf(pool).free
            shelves = [{free: on for free, on in one.fleet.shelf(pool).begun.items() if on} for one in (world, fresh)]
            assert shelves[0] == shelves[1]
            found = occupancy(world, policy, pool, now_ms)
            live = [fresh.jobs[name] for name in fresh.live.values()]
            slow = {job.live.id: tenant_of(policy, job, job.live, now_ms) for job in live if job.live is not None}
            assert {tenant.attempt: tenant for tenant in found.everybody()} == {
                name: tenant for name, tenant in slow.items() if fresh.jobs[tenant.job].attempts[-1].pool == pool
            }
            looked = occupancy(fresh, policy, pool, now_ms)
            for name in world.fleet.frame(pool).hosts:
                assert world.fleet.attempts_on(name) == fresh.fleet.attempts_on(name)
                assert found.at(name) == looked.at(name)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_sums_say_of_a_licence_is_what_a_look_at_each_host_says(path: Path) -> None:
    world, asked = World(), 0
    for position, line in enumerate(path.read_bytes().splitlines(), 1):
        world.apply(codec.read_record(line), position)
        policy, ranked, now_ms = world.policy, world.cycle.ranked, world.log_time_ms
        if policy is None or ranked is None:
            continue
        for rank in ranked.pools:
            room, tenants = Room(world, rank.pool, now_ms), occupancy(world, policy, rank.pool, now_ms)
            picker = Picker(rank, *kept_first(world, rank.pool, now_ms))
            while (pick := picker.next()) is not None:
                permit = permit_of(policy, picker, pick, is_counted=False)
                asked += _compared(tenants, room, room.shape(world.jobs[pick.job]), permit)
                picker.blocked()
    assert asked


def _compared(tenants: Occupancy, room: Room, shape: Shape, permit: Permit) -> int:
    """Each rule asked by sums and host by host; how many could be asked by sums."""
    licence, found = permit.signature(tenants.leaves), 0
    for rule, may_leave in (("licensed", is_licensed), ("evictable", is_evictable)):
        for is_all in (False, True):
            able = tenants.able(room, shape, (rule, licence), partial(may_leave, permit), is_all=is_all)
            if able is None:
                continue
            found += 1
            slow = []
            for host in sorted(room.free):
                gone = [tenant.gpus_on[host] for tenant in tenants.at(host) if may_leave(permit, tenant)]
                is_asked = (is_all or room.is_open(host)) and shape.suits(host, room.size[host])
                if is_asked and len(room.free[host]) + sum(gone) >= shape.gpus_per_host:
                    slow.append(host)
            assert list(room.frame.names(able)) == slow
    return found


def test_a_placement_leaves_no_cycle_of_objects_to_the_collector() -> None:
    """A step that held itself would stay in memory, room, tenants and all, until the collector comes."""
    path, world, steps = next(path for path in LOGS if path.stem == "promises-and-people"), World(), 0
    for position, line in enumerate(path.read_bytes().splitlines(), 1):
        world.apply(codec.read_record(line), position)
        if world.cycle.stage == RANKED and position % 5 == 0:
            gc.collect()
            decision = place.decide(world, ())
            assert gc.collect() == 0
            steps += decision is not None
    assert steps


def host(number: int, gpus: int) -> Host:
    inventory = Inventory(
        pool="p", gpus=tuple(map(str, range(gpus))), model="m", memory_mib=1, cpu_cores=1, host_memory_mib=1
    )
    return Host(f"h{number:03d}", "boot", inventory)


@pytest.mark.parametrize("seed", range(20))
def test_lanes_are_compared_as_if_each_host_were_looked_at(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 4, 8, 16)) for _ in range(rng.randint(1, 130))]
    frame = Frame([host(number, gpus) for number, gpus in enumerate(sizes)])
    taken = [rng.randint(0, gpus) for gpus in sizes]
    held = sum(frame.held(name, gpus) for name, gpus in zip(frame.hosts, taken, strict=True))
    for wanted in (1, 3, 8, 16):
        among = sum(bit for bit, gpus in zip(frame.bits, sizes, strict=True) if gpus >= wanted and rng.random() < 0.8)
        found = list(frame.names(frame.with_room(held, wanted, among)))
        slow = [
            name
            for place, (name, gpus) in enumerate(zip(frame.hosts, sizes, strict=True))
            if among >> place * LANE_BITS + LANE_BITS - 1 & 1 and gpus - taken[place] >= wanted
        ]
        assert found == slow
