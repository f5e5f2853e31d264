"""What is granted: whole gangs on free GPUs of hosts without a hold, each released once."""

from collections import Counter

from msgspec.structs import replace

from fairlease.core.order import host_order
from fairlease_schemas.cycle import EvictionOrdered, GangGranted, Licence, ReservationEnded, ReservationMade
from fairlease_schemas.envelope import Record
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered
from fairlease_schemas.ids import job_of
from fairlease_schemas.job import AttemptEnded, End, JobRequeued
from fairlease_schemas.orders import HostOrder
from tests.dsl.cell import Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories

Gpu = tuple[str, int]


class Occupancy:
    """Who holds each GPU and who holds each host, written down from the events alone."""

    def __init__(self) -> None:
        self.holder: dict[Gpu, str] = {}
        self.holds: Counter[str] = Counter()
        self.ended: set[str] = set()
        self.kept: dict[str, tuple[ReservationMade, int]] = {}

    def see(self, cell: Cell, record: Record) -> None:
        for event in record.events:
            match event:
                case GangGranted():
                    self._granted(cell, event, record.at_ms)
                case ReservationMade():
                    self.kept[event.job] = (event, cell.world.log_time_ms + event.for_ms)
                case JobRequeued() if event.end is End.FAULT:
                    self._kept_after_fault(cell, event.job)
                case ReservationEnded():
                    del self.kept[event.job]
                case AttemptEnded():
                    assert event.attempt not in self.ended, "released twice"
                    self.ended.add(event.attempt)
                    held = [gpu for gpu, attempt in self.holder.items() if attempt == event.attempt]
                    assert held, "released though nothing was held"
                    for gpu in held:
                        del self.holder[gpu]
                case HostHeld():
                    self.holds[event.host] += 1
                case HostHoldCleared():
                    self.holds[event.host] -= 1
                case _:
                    pass
        for host in cell.world.fleet.hosts:
            for index, attempt in enumerate(cell.world.fleet.occupants(host)):
                assert self.holder.get((host, index), "") == attempt, "the fold's occupancy is the log's"

    def _kept_after_fault(self, cell: Cell, name: str) -> None:
        """Rule 7.7: where no part ended by the fault, for as long as the policy says."""
        policy, last = cell.world.policy, cell.world.jobs[name].attempts[-1]
        assert policy is not None
        broken = {part.host for part in last.gone if part.end is End.FAULT}
        in_force = [made for made, until_ms in self.kept.values() if cell.world.log_time_ms < until_ms]
        others = {host for made in in_force if made.job != name for host in made.hosts}
        others |= {host for job, promise in cell.world.promises.items() if job != name for host in promise.hosts}
        hosts = tuple(host for host in last.hosts if host not in broken | others)
        if hosts and cell.phase(name) == "waiting":
            kept = ReservationMade(job=name, pool=last.pool, hosts=hosts, for_ms=policy.fault_reserve_ms)
            self.kept[name] = (kept, cell.world.log_time_ms + kept.for_ms)

    def _granted(self, cell: Cell, event: GangGranted, at_ms: int) -> None:
        job = cell.world.jobs[event.job]
        request, hosts = job.request, [part.host for part in event.parts]
        assert len(set(hosts)) == len(hosts) == request.hosts, "the gang is whole, each host once"
        assert event.pool in job.pools
        assert event.number == len(job.attempts)
        self.kept.pop(event.job, None)
        in_force = [made for made, until_ms in self.kept.values() if at_ms < until_ms and made.pool == event.pool]
        kept = {host for made in in_force for host in made.hosts}
        assert kept.isdisjoint(hosts), "granted on hosts that are kept for another"
        for part in event.parts:
            size = cell.world.fleet.hosts[part.host].gpus
            assert len(set(part.gpus)) == len(part.gpus) == request.gpus_per_host
            assert request.hosts == 1 or size == request.gpus_per_host, "a gang takes whole hosts"
            assert self.holds[part.host] == 0, "granted on a held host"
            assert cell.world.fleet.hosts[part.host].inventory.pool == event.pool
            for index in part.gpus:
                assert index < size
                assert (part.host, index) not in self.holder, "a GPU held twice"
                self.holder[part.host, index] = event.attempt


@at_length
def test_no_gpu_is_held_twice_and_gangs_are_whole_on_open_hosts(examples: int) -> None:
    def grants_are_sound(story: Story) -> None:
        occupancy = Occupancy()
        play(story, Cell(occupancy.see))

    examine(grants_are_sound, stories(), examples)


# evictions ------------------------------------------------------------------------------------------


def see_evictions(cell: Cell, record: Record) -> None:
    """Victims are idle or past their window, and leave for a claim above idle that they make room for, or by a move."""
    victims: list[EvictionOrdered] = []
    for event in record.events:
        if isinstance(event, EvictionOrdered) and event.licence is Licence.MOVE:
            job = cell.world.jobs[job_of(event.attempt)]
            over_ms = job.attempts[-1].granted_ms + job.attempts[-1].window_ms
            assert over_ms <= cell.world.log_time_ms, "a window was broken"
            assert (event.claim, event.drain) == ("", "")
        elif isinstance(event, EvictionOrdered):
            victims.append(event)
        elif isinstance(event, ReservationMade):
            _is_needed_and_enough(cell, event, [v for v in victims if v.claim == event.job])
    made = {e.job for e in record.events if isinstance(e, ReservationMade)}
    assert made <= {v.claim for v in victims} <= made | cell.world.promises.keys()


def _is_needed_and_enough(cell: Cell, kept: ReservationMade, victims: list[EvictionOrdered]) -> None:
    world, claim = cell.world, cell.world.jobs[kept.job]
    assert not claim.is_idle_work
    assert all(v.licence is not Licence.IDLE for v in victims)
    for victim in victims:
        attempt = world.jobs[job_of(victim.attempt)].attempts[-1]
        assert attempt.granted_ms + attempt.window_ms <= world.log_time_ms, "a window was broken"
    assert len(kept.hosts) == claim.request.hosts

    def room(leaving: set[str]) -> bool:
        return all(
            sum(1 for holder in world.fleet.occupants(host) if not holder or holder in leaving)
            >= claim.request.gpus_per_host
            for host in kept.hosts
        )

    leaving = {v.attempt for v in victims}
    assert room(leaving), "the victims do not make room"
    assert not any(room(leaving - {one}) for one in leaving), "a victim that is not needed"


@at_length
def test_no_window_is_broken_and_never_more_leave_than_makes_room(examples: int) -> None:
    def evictions_are_sound(story: Story) -> None:
        play(story, Cell(see_evictions))

    examine(evictions_are_sound, stories(), examples)


# orders ---------------------------------------------------------------------------------------------


class Orders:
    """The last order of every host, as a publisher would have it."""

    def __init__(self) -> None:
        self.last: dict[str, HostOrder] = {}
        self._registered: dict[str, int] = {}

    def see(self, cell: Cell, record: Record) -> None:
        registered = [event.host for event in record.events if isinstance(event, HostRegistered)]
        self._registered |= dict.fromkeys(registered, cell.world.position)
        for host, known in cell.world.fleet.hosts.items():
            order, before = host_order(cell.world, host), self.last.get(host)
            assert order.incarnation == known.incarnation
            if before is not None:
                assert order.position >= before.position
                is_same = replace(order, position=before.position) == before
                assert is_same or order.position == cell.world.position > before.position
            for run in order.runs:
                attempt = cell.world.jobs[run.job].attempts[-1]
                if attempt.granted_ms != known.registered_ms:  # within a millisecond it is not told apart
                    assert run.is_of_before == (attempt.token.position < self._registered[host])
                assert not cell.world.jobs[run.job].is_terminal, "a job that is over is ordered"
                assert run.hosts[run.rank] == host
            self.last[host] = order


@at_length
def test_an_order_that_changes_has_a_new_position(examples: int) -> None:
    def orders_are_sound(story: Story) -> None:
        orders = Orders()
        play(story, Cell(orders.see))

    examine(orders_are_sound, stories(), examples)
