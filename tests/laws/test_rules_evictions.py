"""What every eviction keeps in any living cell: windows, licences, sufficiency, and no way round in circles (5)."""

from hypothesis import strategies as st

from fairlease.core.world import World
from fairlease_schemas.cycle import (
    EvictionOrdered,
    GangGranted,
    Licence,
    PromiseMade,
    ReservationMade,
)
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import job_of
from fairlease_schemas.job import AttemptEnded
from tests.dsl.cell import HOUR, MINUTE, SECOND
from tests.laws.examine import at_length, examine
from tests.naive import eviction as naive
from tests.naive import standing as slow
from tests.naive.living import GPUS, STEPS, Law, Life, Living, Submit, Wait, lives, often, policies, submits


def evictions(record: Record) -> list[EvictionOrdered]:
    return [event for event in record.events if isinstance(event, EvictionOrdered)]


def claimed(record: Record) -> list[EvictionOrdered]:
    """Those that are for a claim."""
    return [event for event in evictions(record) if event.licence is not Licence.MOVE]


class NoWindowIsBroken(Law):
    """Rules 5.1, 5.7: who is told to leave is idle, or past its window and its exemption."""

    def before(self, cell: Living, record: Record) -> None:
        policy = cell.world.policy
        for event in evictions(record):
            found = cell.world.attempt(event.attempt)
            assert found is not None
            assert policy is not None
            job, attempt = found
            if job.request.min_runtime_ms:
                until_ms = max(attempt.granted_ms + attempt.window_ms, slow.exempt_until_ms(policy, job))
                early_ms = until_ms - record.at_ms
                assert early_ms <= 0, f"{event.attempt} is told to leave {early_ms} ms before its window ends"


class EveryVictimIsLicensed(Law):
    """Rules 3.5-3.8 and 5.2: judged at the basis of the record, by the slow numbers.

    The window of a claim that evicts is promised from then on, also to those who come behind it in the record.
    """

    def __init__(self) -> None:
        self.history = slow.History()
        self.promised: dict[str, PromiseMade] = {}

    def after(self, cell: Living, record: Record) -> None:
        self.history.add(cell.records[-1])

    def before(self, cell: Living, record: Record) -> None:
        world = cell.world
        kept = dict(world.promises)
        numbers: dict[str, dict[str, slow.Number]] = {}
        for event in record.events:
            if isinstance(event, ReservationMade):
                self._promised(world, event, self._numbers(world, record, event.pool, numbers))
            if not isinstance(event, EvictionOrdered) or event.licence is Licence.MOVE:
                continue
            claim, found = world.jobs[event.claim], world.attempt(event.attempt)
            assert found is not None
            victim, attempt = found
            assert claim.request.min_runtime_ms, f"{event.claim} is idle work and evicts"
            assert claim.id != victim.id
            if victim.request.min_runtime_ms == 0 or event.claim in kept:
                continue  # idle work needs no comparison; a promise keeps the licence it was made with
            self._judge(world, event, attempt.pool, self._numbers(world, record, attempt.pool, numbers))

    def _numbers(
        self, world: World, record: Record, pool: str, known: dict[str, dict[str, slow.Number]]
    ) -> dict[str, slow.Number]:
        if pool not in known:
            assert world.policy is not None
            known[pool] = slow.standings(self.history, world, world.policy, pool, record.at_ms)
        return known[pool]

    def _promised(self, world: World, event: ReservationMade, numbers: dict[str, slow.Number]) -> None:
        owed = (world.promises.get(event.job), world.reservations.get(event.job))
        if any(one is not None and one.pool == event.pool for one in owed):
            return
        job = world.jobs[event.job]
        for node in world.tree.path(job.budget):
            number = numbers[node]
            promised = number.promised + job.gpus * slow.window_ms(job)
            numbers[node] = slow.Number(number.entitled, number.used, promised)

    def _judge(self, world: World, event: EvictionOrdered, pool: str, numbers: dict[str, slow.Number]) -> None:
        claim, victim = world.jobs[event.claim], world.jobs[job_of(event.attempt)]
        tree = {name: (node.parent, node.weight) for name, node in world.tree.nodes.items()}
        is_debug = event.licence is Licence.DEBUG
        live = victim.live
        assert live is not None
        if is_debug:
            assert live.licence is not Licence.DEBUG, f"{event.claim} evicts {event.attempt} of its own lane"
        if claim.budget == victim.budget:
            assert is_debug, f"{event.claim} evicts {event.attempt} of its own leaf"
            return
        assert world.policy is not None
        policy, kept = world.policy, world.reservations.get(claim.id)
        # Where a fault left the claim a part of its hosts, its window is among the promised by now (2.5, 7.7).
        is_new = kept is None or kept.pool != pool
        new_gpu_ms = claim.gpus * slow.window_ms(claim) if is_new else 0
        side = naive.side_of(policy, claim.budget, event.licence, new_gpu_ms, numbers, tree)
        assert naive.is_outweighed(side, victim.budget), f"{event.claim} evicts {event.attempt}: {numbers}"


class EveryPlanSuffices(Law):
    """Rules 5.1, 5.6: with its victims gone the gang fits; with any one of them left it does not."""

    def before(self, cell: Living, record: Record) -> None:
        world = cell.world
        plans = {event.job: event for event in record.events if isinstance(event, ReservationMade)}
        by_claim: dict[str, list[str]] = {}
        for event in claimed(record):
            by_claim.setdefault(event.claim, []).append(event.attempt)
        for name, plan in plans.items():
            victims = by_claim.get(name, [])
            assert victims, f"{name} has hosts kept and asks nobody to leave"
            self._fits(world, name, plan, victims)
            for spared in victims:
                rest = [one for one in victims if one != spared]
                assert not self._enough(world, name, plan, rest), f"{spared} leaves for {name} and need not"
        promised = world.promises.keys() | {event.job for event in record.events if isinstance(event, PromiseMade)}
        for name in by_claim.keys() - plans.keys():
            assert name in promised, f"{name} evicts and neither keeps hosts nor has a promise"

    def _fits(self, world: World, name: str, plan: ReservationMade, victims: list[str]) -> None:
        assert self._enough(world, name, plan, victims), f"{victims} leave and {name} has no room still"

    def _enough(self, world: World, name: str, plan: ReservationMade, victims: list[str]) -> bool:
        request = world.jobs[name].request
        able = 0
        for host in plan.hosts:
            occupants = world.fleet.occupants(host)
            free = sum(1 for occupant in occupants if not occupant or occupant in victims)
            able += free >= request.gpus_per_host and not world.fleet.hosts[host].holds
        return able >= request.hosts == len(plan.hosts)


class OneSetAtATime(Law):
    """Rule 5.6: while a claim's reservation stands nobody else is asked to leave for it.

    What a fault left it (7.7) is a part of its hosts: for the others it may ask, once.
    """

    def before(self, cell: Living, record: Record) -> None:
        for event in claimed(record):
            kept = cell.world.reservations.get(event.claim)
            assert kept is None or kept.is_part, f"a second set of victims for {event.claim}"
        made = [event.job for event in record.events if isinstance(event, ReservationMade)]
        assert len(made) == len(set(made))


class NoLoops(Law):
    """Rule 5.3: never b for a, then a for b or for b's leaf, although a has not run its whole window since.

    What a fault left of a window (7.7) is the whole of it here, and may be nothing: standing alone forbids it then.
    """

    def __init__(self) -> None:
        self.came: dict[str, tuple[str, str]] = {}
        """Attempt that evicted to the victims' job and leaf, as the last of its set says."""
        self.asked: dict[str, set[tuple[str, str]]] = {}

    def before(self, cell: Living, record: Record) -> None:
        world = cell.world
        for event in record.events:
            if isinstance(event, EvictionOrdered) and event.licence is not Licence.MOVE:
                loser, winner = world.jobs[job_of(event.attempt)], world.jobs[event.claim]
                attempt = loser.live
                assert attempt is not None
                has_run = record.at_ms - attempt.granted_ms >= attempt.window_ms
                for name, leaf in self.asked.get(loser.id, ()):
                    if not has_run:
                        assert name != winner.id, f"{loser.id} evicted {name} and now leaves for it"
                        assert leaf != winner.budget, f"{loser.id} evicted work of {leaf} and now leaves for it"
                self.asked.setdefault(winner.id, set()).add((loser.id, loser.budget))
            elif isinstance(event, AttemptEnded):
                self.asked.pop(job_of(event.attempt), None)


class KeptHostsAreForTheirClaim(Law):
    """Rule 5.6: until the claim has its GPUs or the time is over nobody else, its victims least of all, gets them."""

    def before(self, cell: Living, record: Record) -> None:
        kept = {n: r for n, r in cell.world.reservations.items() if record.at_ms < r.expires_ms}
        for event in record.events:
            if isinstance(event, GangGranted):
                kept.pop(event.job, None)
                hosts = {part.host for part in event.parts}
                for name, reservation in kept.items():
                    assert not hosts & set(reservation.hosts), f"{event.job} was granted on hosts kept for {name}"


class MovesMakeHostsWhole(Law):
    """Rule 5.8: one host of a pool at a time, all who stand there, for a price, where somebody wants it whole."""

    def __init__(self) -> None:
        self.made = 0

    def before(self, cell: Living, record: Record) -> None:
        world, policy = cell.world, cell.world.policy
        moved: dict[str, list[EvictionOrdered]] = {}
        for event in evictions(record):
            if event.licence is Licence.MOVE:
                assert (event.claim, event.drain, event.is_deadline) == ("", "", False)
                found = world.attempt(event.attempt)
                assert found is not None
                assert len(found[1].hosts) == 1, f"{event.attempt} is moved and stands on {found[1].hosts}"
                moved.setdefault(found[1].hosts[0], []).append(event)
                above = [world.tree.nodes[name] for name in world.tree.path(found[0].budget)]
                is_capped = any(node.max_protected_permille or node.burst_permille for node in above)
                assert not is_capped or not found[0].request.min_runtime_ms, f"a cap may keep {event.attempt} out"
        pools = [world.fleet.hosts[host].inventory.pool for host in moved]
        assert len(pools) == len(set(pools)), f"in one pool two hosts at once: {list(moved)}"
        for host, events in moved.items():
            assert policy is not None
            known = world.fleet.hosts[host]
            pool = known.inventory.pool
            stand = {occupant for occupant in world.fleet.occupants(host) if occupant}
            assert stand == {event.attempt for event in events}, f"{host} is not whole when they are gone"
            lost, hole = sum(event.lost_gpu_ms for event in events), naive.free_on(world, host)
            assert lost <= hole * policy.move_gain_ms, f"{lost} is lost for a hole of {hole} on {host}"
            assert naive.can_move(world, policy, pool, host, record.at_ms), f"not all have room elsewhere: {events}"
            waiting = [job.request for job in world.jobs.values() if str(job.phase) == "waiting"]
            is_asked = any(r.gpus_per_host == known.gpus for r in waiting)
            is_short = len(naive.spares(world, pool, record.at_ms)) < naive.spares_wanted(world, pool, record.at_ms)
            assert is_asked or is_short, f"nobody waits for {host}"
            self.made += 1


class SpareHostsAreForTheLane(Law):
    """Rules 3.1, 7.7: a spare host is granted to the lane, to a gang that a fault left a part, or to a large one."""

    def before(self, cell: Living, record: Record) -> None:
        world = cell.world
        spare = {host for pool in world.fleet.pools() for host in naive.spares(world, pool, record.at_ms)}
        for event in record.events:
            if isinstance(event, GangGranted):
                kept = world.reservations.get(event.job)
                least = world.policy.spare_yield_hosts if world.policy is not None else 0
                is_large = 0 < least <= len(event.parts) and event.licence is not Licence.IDLE
                is_let_in = is_large or event.licence is Licence.DEBUG or (kept is not None and kept.is_part)
                for part in event.parts:
                    assert part.host not in spare or is_let_in, f"{event.attempt} has the spare {part.host}"
                    spare.discard(part.host)


class ChainsEnd(Law):
    """At one log time nobody is told to leave more often than there are jobs that may start inside a window."""

    def __init__(self) -> None:
        self._at_ms = 0
        self._told: dict[str, int] = {}

    def before(self, cell: Living, record: Record) -> None:
        if record.at_ms != self._at_ms:
            self._at_ms, self._told = record.at_ms, {}
        for event in evictions(record):
            name = job_of(event.attempt)
            self._told[name] = self._told.get(name, 0) + 1
            assert self._told[name] <= len(cell.jobs), f"{name} is told to leave again and again at {self._at_ms}"


ALL = (
    NoWindowIsBroken,
    EveryVictimIsLicensed,
    EveryPlanSuffices,
    OneSetAtATime,
    NoLoops,
    KeptHostsAreForTheirClaim,
    MovesMakeHostsWhole,
    SpareHostsAreForTheLane,
)
MOVING = policies(
    debug_spare_hosts=st.sampled_from((0, 1, 2)),
    spare_yield_hosts=st.sampled_from((0, 0, 2)),
    move_gain_ms=st.sampled_from((HOUR, 24 * HOUR)),
    margin_permille=st.just(10**6),
    promises_per_pool=st.sampled_from((0, 0, 1)),
)
SMALL = submits(
    leaf=st.integers(0, 1),
    gpus=st.sampled_from((1, 1, 1, 2, 2, 3)),
    window_ms=st.sampled_from((0, 0, 0, MINUTE)),
    runs_ms=st.sampled_from((20 * MINUTE, HOUR, 9 * HOUR)),
    timeout_ms=st.just(12 * HOUR),
    grace_ms=st.sampled_from((0, 30 * SECOND)),
    saves_ms=st.sampled_from((0, MINUTE)),
    stop_permille=st.sampled_from((0, 0, 1000)),
)
WHOLE = submits(
    leaf=st.integers(0, 1),
    hosts=st.sampled_from((1, 1, 2)),
    gpus=st.just(GPUS),
    window_ms=st.just(0),
    runs_ms=st.sampled_from((5 * MINUTE, 9 * HOUR)),
    timeout_ms=st.just(12 * HOUR),
)
PAUSES = st.builds(Wait, ms=st.sampled_from((2 * MINUTE, 21 * MINUTE, HOUR)))
SMALL_WORK = st.sampled_from((SMALL,) * 6 + (WHOLE,) * 2 + (PAUSES,) * 3 + (STEPS,)).flatmap(lambda kind: kind)


@at_length
def test_windows_licences_and_plans_are_kept_in_every_life(examples: int) -> None:
    def law(life: Life) -> None:
        Living(life, *(kind() for kind in ALL)).live()

    examine(law, lives(), examples)


@at_length
def test_the_lane_evicts_nobody_of_the_lane(examples: int) -> None:
    """Rule 3.5, where there is little else than debug work."""

    def law(life: Life) -> None:
        Living(life, EveryVictimIsLicensed(), SpareHostsAreForTheLane()).live()

    examine(law, lives(often(submits=1, debugs=4, waits=4)), examples)


@at_length
def test_moves_make_hosts_whole_and_come_to_rest(examples: int) -> None:
    """Rule 5.8, where much is small and idle; at once, so that nothing but the rule ends a row of moves."""
    seen: list[int] = []

    def law(life: Life) -> None:
        moves = MovesMakeHostsWhole()
        roomy = life._replace(hosts=max(3, life.hosts))
        Living(roomy, moves, SpareHostsAreForTheLane(), ChainsEnd(), NoWindowIsBroken()).live()
        seen.append(moves.made)

    examine(law, lives(SMALL_WORK, MOVING, least=20, has_caps=False), examples)
    assert sum(made > 0 for made in seen) >= examples // 20, f"moves are seldom seen: {seen}"


@at_length
def test_every_chain_of_evictions_ends_at_one_log_time(examples: int) -> None:
    """Rule 5.3: even where everybody leaves at once, so that nothing but the rules ends it."""

    def law(life: Life) -> None:
        at_once = {"stop_permille": 0, "starts_ms": 0, "grace_ms": 0}
        steps = tuple(step._replace(**at_once) if isinstance(step, Submit) else step for step in life.steps)
        Living(life._replace(steps=steps), ChainsEnd()).live()

    examine(law, lives(often(submits=10, debugs=2, waits=6, seldom=1)), examples)
