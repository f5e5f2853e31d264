"""What every promise keeps in a living cell whose agents stop in time (6)."""

from hypothesis import strategies as st

from fairlease_schemas.cycle import (
    EvictionOrdered,
    GangGranted,
    PromiseEnd,
    PromiseEnded,
    PromiseMade,
    ReservationMade,
)
from fairlease_schemas.envelope import Record
from tests.dsl.cell import HOUR
from tests.laws.examine import at_length, examine
from tests.naive import standing as slow
from tests.naive.living import Law, Life, Living, lives, often, policies


class EveryPromiseIsKept(Law):
    """Kept, replaced by an earlier one, or voided by an event that is there; never broken."""

    def before(self, cell: Living, record: Record) -> None:
        world, policy = cell.world, cell.world.policy
        ended = {event.job: event for event in record.events if isinstance(event, PromiseEnded)}
        for name, event in ended.items():
            promise = world.promises[name]
            assert event.why is not PromiseEnd.BROKEN, f"{name}: the promise is broken"
            if event.why is PromiseEnd.EARLIER:
                self._replaced(cell, record, name, promise.start_ms)
            elif event.why is PromiseEnd.HOST_HELD:
                assert world.fleet.hosts[event.cause].holds
                assert event.cause in promise.hosts
            elif event.why is PromiseEnd.CLAIM_LEFT:
                assert str(world.jobs[name].phase) != "waiting"
            elif event.why is PromiseEnd.POLICY_CHANGED:
                assert world.policy_address > promise.made
            elif event.why is PromiseEnd.TREE_CHANGED:
                assert world.tree_address > promise.made
            else:
                raise AssertionError(f"{name}: {event.why}, and no service was away")
        for event in record.events:
            if isinstance(event, GangGranted) and event.job in world.promises:
                late_ms = record.at_ms - world.promises[event.job].start_ms
                assert late_ms <= 0, f"{event.job} is granted {late_ms} ms after its promise"
            if isinstance(event, PromiseMade):
                assert event.job not in world.promises or event.job in ended
                assert policy is not None
                proof_ms = event.latest_in_ms + event.grace_ms + policy.stop_margin_ms
                assert event.start_in_ms == proof_ms

    def _replaced(self, cell: Living, record: Record, name: str, start_ms: int) -> None:
        """By an earlier promise, or by evictions now that make room sooner."""
        policy = cell.world.policy
        assert policy is not None
        for event in record.events:
            if isinstance(event, PromiseMade) and event.job == name:
                assert record.at_ms + event.start_in_ms < start_ms
                return
            if isinstance(event, ReservationMade) and event.job == name:
                by_ms = record.at_ms + event.for_ms - policy.reservation_slack_ms
                assert by_ms < start_ms, f"{name}: evictions make room {by_ms - start_ms} ms after the promise"
                return
        raise AssertionError(f"{name}: its promise was replaced by nothing")

    def at_rest(self, cell: Living) -> None:
        assert cell.world.promise_book.broken == 0
        for name, promise in cell.world.promises.items():
            late_ms = cell.now_ms - promise.start_ms
            assert late_ms <= 0, f"{name} waits {late_ms} ms after its promise, on {promise.hosts}"


class PromisedHostsTakeNoLongWork(Law):
    """Rule 6.3: what is granted there is gone by the start, and nothing but the promise evicts there."""

    def before(self, cell: Living, record: Record) -> None:
        world, policy = cell.world, cell.world.policy
        assert policy is not None or not world.promises
        promises = dict(world.promises)
        for event in record.events:
            if isinstance(event, GangGranted) and policy is not None:
                promises.pop(event.job, None)  # what it does not use is open to those who come after it
                job = world.jobs[event.job]
                window_ms = max(event.window_ms, slow.exempt_until_ms(policy, job) - record.at_ms)
                gone_ms = record.at_ms + window_ms + job.request.grace_ms + policy.stop_margin_ms
                for name, promise in promises.items():
                    if {part.host for part in event.parts} & set(promise.hosts):
                        late_ms = gone_ms - promise.start_ms
                        assert late_ms <= 0, f"{event.job} may stay {late_ms} ms too long for the promise to {name}"
            if isinstance(event, ReservationMade):
                for name, promise in world.promises.items():
                    over = {e.job for e in record.events if isinstance(e, PromiseEnded)}
                    assert name in over or not set(event.hosts) & set(promise.hosts)


class PromisesAreFew(Law):
    """Rule 6.5: so many at once in a pool, on so much of it, so far ahead; one host always may be. No host twice."""

    def after(self, cell: Living, record: Record) -> None:
        world, policy = cell.world, cell.world.policy
        made = [event for event in record.events if isinstance(event, PromiseMade)]
        if not made or policy is None:
            return
        horizon_ms = policy.promise_horizon_ms
        assert not horizon_ms or all(event.start_in_ms <= horizon_ms * len(event.hosts) for event in made)
        for pool in {event.pool for event in made}:
            standing = [p for p in world.promises.values() if p.pool == pool]
            assert len(standing) <= policy.promises_per_pool
            hosts = [host for p in standing for host in p.hosts]
            assert len(hosts) == len(set(hosts)), f"a host is promised twice: {hosts}"
            gpus = sum(world.fleet.hosts[host].gpus for host in hosts)
            limit = world.fleet.schedulable[pool].value * policy.promise_permille // 1000
            assert gpus <= limit or len(hosts) == 1, f"{gpus} GPUs of {pool} are promised, the limit is {limit}"


class TellingsAreOnTime(Law):
    """Rule 6.3: who must leave for a promise is told grace + stop margin before its start, no later."""

    def before(self, cell: Living, record: Record) -> None:
        world, policy = cell.world, cell.world.policy
        for event in record.events:
            if isinstance(event, EvictionOrdered) and event.claim in world.promises and policy is not None:
                promise = world.promises[event.claim]
                late_ms = record.at_ms + event.grace_ms + policy.stop_margin_ms - promise.start_ms
                assert late_ms <= 0, f"{event.attempt} is told {late_ms} ms too late to leave for {event.claim}"


MANY_PROMISES = policies(
    promises_per_pool=st.sampled_from((2, 1, 3)),
    promise_permille=st.sampled_from((250, 500, 1000)),
    entitlement_floor_ms=st.sampled_from((HOUR, 24 * HOUR)),
    half_life_ms=st.just(0),
    patience_ms=st.just(0),
)
ALL = (EveryPromiseIsKept, PromisedHostsTakeNoLongWork, PromisesAreFew, TellingsAreOnTime)


@at_length
def test_promises_are_kept_replaced_by_earlier_ones_or_voided_by_name(examples: int) -> None:
    def law(life: Life) -> None:
        Living(life, *(kind() for kind in ALL)).live()

    examine(law, lives(), examples)


@at_length
def test_promises_are_kept_where_there_are_many(examples: int) -> None:
    """More of them at once, on more of the pool, between work that fills the holes."""

    def law(life: Life) -> None:
        Living(life, *(kind() for kind in ALL)).live()

    examine(law, lives(often(submits=8, waits=6, seldom=1), MANY_PROMISES, has_caps=False), examples)


@at_length
def test_promises_are_kept_where_nothing_else_happens(examples: int) -> None:
    """No cancel, hold or change: then nothing may void one."""

    def law(life: Life) -> None:
        cell = Living(life, *(kind() for kind in ALL)).live()
        assert cell.world.promise_book.voided == 0

    examine(law, lives(often(submits=2, waits=1)), examples)
