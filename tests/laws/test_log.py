"""The log is the system: what is folded from it, in whatever pieces, decides the same bytes again."""

from hypothesis import strategies as st

from fairlease.core import view
from fairlease.core.deciders import RULES
from fairlease.core.world import World
from fairlease.replay.verify import verify
from fairlease_schemas import codec
from fairlease_schemas.commands import CancelJob, ChangeBudget, CordonHost
from fairlease_schemas.envelope import Record, Submitted
from fairlease_schemas.reports import HostUp, RunGone, RunReady, RunStarted
from tests.dsl.cell import HOUR, SERVICES, Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories


@at_length
def test_every_record_is_decided_again_to_the_same_bytes(examples: int) -> None:
    def replay_finds_nothing(story: Story) -> None:
        cell = play(story)
        report = verify(enumerate(cell.records, 1))
        assert report.first is None
        assert report.positions == len(cell.records)
        assert report.digest == cell.world.digest()

    examine(replay_finds_nothing, stories(), examples)


@at_length
def test_a_snapshot_and_the_tail_are_the_whole_fold(examples: int) -> None:
    def snapshot_and_tail_are_whole(drawn: tuple[Story, int]) -> None:
        story, at = drawn
        cell = play(story)
        position = at % len(cell.records)
        whole = World()
        for number in range(1, position + 1):
            whole.apply(cell.record(number), number)
        restored = World.load(whole.dump())
        assert restored.digest() == whole.digest()
        for number in range(position + 1, len(cell.records) + 1):
            restored.apply(cell.record(number), number)
        assert restored.digest() == cell.world.digest()
        assert view.queue(restored, 99) == view.queue(cell.world, 99)
        assert view.shares(restored) == view.shares(cell.world)
        assert list(restored.live) == list(cell.world.live)
        assert [RULES[name].due_ms(restored) for name in SERVICES] == [RULES[s].due_ms(cell.world) for s in SERVICES]

    examine(snapshot_and_tail_are_whole, st.tuples(stories(), st.integers(0, 999)), examples)


@at_length
def test_a_cell_that_restarts_all_the_time_writes_the_same_log(examples: int) -> None:
    """Also the order in which a loaded world is walked is that of the world that was dumped."""

    def restarts_leave_no_trace(drawn: tuple[Story, int]) -> None:
        story, every = drawn

        def restart(cell: Cell, _record: Record) -> None:
            if len(cell.records) % every == 0:
                cell.world = World.load(cell.world.dump())

        assert play(story, Cell(restart)).records == play(story).records

    examine(restarts_leave_no_trace, st.tuples(stories(), st.integers(1, 4)), examples)


@at_length
def test_deciding_looks_and_changes_nothing(examples: int) -> None:
    def deciding_is_pure(story: Story) -> None:
        def decide_twice(cell: Cell, _record: Record) -> None:
            before = cell.world.digest()
            assert [cell.draft(name) for name in SERVICES] == [cell.draft(name) for name in SERVICES]
            view.queue(cell.world, 9)
            view.shares(cell.world)
            assert cell.world.digest() == before

        play(story, Cell(decide_twice))

    examine(deciding_is_pure, stories(12), examples)


@at_length
def test_a_message_answered_again_changes_nothing(examples: int) -> None:
    """Whoever repeats a command or a report finds the same state; only the cursor moves on."""

    def repeats_are_harmless(story: Story) -> None:
        cell = play(story)
        heard = [(answer.said, answer.who) for record in _records(cell) for answer in record.answers]
        for said, who in [(said, who) for said, who in heard if isinstance(said, REPEATED)][-3:]:
            cell.say(said, who)
            before = _state(cell)
            cell.say(said, who)
            assert _state(cell) == before

    examine(repeats_are_harmless, stories(), examples)


REPEATED = (Submitted, CancelJob, ChangeBudget, CordonHost, HostUp, RunGone, RunReady, RunStarted)


def _state(cell: Cell) -> tuple[object, ...]:
    world = cell.world
    return (dict(world.jobs), world.tree, world.policy, dict(world.fleet.hosts), dict(world.reservations))


def _records(cell: Cell) -> list[Record]:
    return [cell.record(position) for position in range(1, len(cell.records) + 1)]


@at_length
def test_log_time_never_goes_back_and_bases_lie_before_their_records(examples: int) -> None:
    def log_time_goes_on(story: Story) -> None:
        times = {"intake": 0, "alloc": 0}
        last = {"intake": 0, "alloc": 0}
        world = World()
        cell = play(story)
        for position, record in enumerate(_records(cell), 1):
            scope = "intake" if record.by in ("admission", "ledger") else "alloc"
            assert record.at_ms >= times[scope]
            assert last[scope] <= record.basis < position
            assert all(cause.position <= record.basis for cause in record.causes)
            assert codec.sealed(record)[0].id == record.id
            before_ms = world.log_time_ms
            world.apply(record, position)
            assert world.log_time_ms >= before_ms
            times[scope], last[scope] = record.at_ms, position

    examine(log_time_goes_on, stories(), examples)


# where the order of input does not matter -----------------------------------------------------------


@at_length
def test_hosts_and_budgets_may_come_in_any_order(examples: int) -> None:
    """Every choice ends in an id, so who was registered first decides nothing."""

    def order_does_not_matter(drawn: tuple[list[int], list[str], list[int]]) -> None:
        hosts, budgets, gpus = drawn
        logs = []
        for numbers, names in ((hosts, budgets), (sorted(hosts), sorted(budgets))):
            cell = Cell()
            for number in numbers:
                cell.hosts(1, gpus=4 + 4 * (number % 2), first=number, block=2)
            cell.budgets(**dict.fromkeys(names, 1))
            for n, count in enumerate(gpus):
                fields = {"hosts": 1 + n % 2, "gpus_per_host": count if n % 2 == 0 else 4 + n % 4 // 2 * 4}
                cell.submit(f"r{n}", "abc"[n % 3], min_runtime_ms=n % 3 * HOUR, settle=False, **fields)
            cell.settle()
            where = {job.id: [attempt.parts for attempt in job.attempts] for job in cell.world.jobs.values()}
            logs.append((where, cell.world.reasons_of("placement").keys(), cell.world.tree))
        assert logs[0] == logs[1]

    anything = st.tuples(
        st.permutations(range(1, 7)), st.permutations(("a", "b", "c")), st.lists(st.integers(1, 8), max_size=10)
    )
    examine(order_does_not_matter, anything, examples)


@at_length
def test_the_parts_of_a_gang_may_start_and_succeed_in_any_order(examples: int) -> None:
    def order_does_not_matter(hosts: list[int]) -> None:
        cell = Cell().hosts(len(hosts), gpus=2).budgets(a=1)
        job = cell.submit("r1", hosts=len(hosts), gpus_per_host=2)
        for said in (cell.run_started(job), cell.run_gone(job)):
            for host in hosts:
                cell.say(said, f"host-{host:03d}")
        (attempt,) = cell.world.jobs[job].attempts
        assert (cell.phase(job), attempt.exit_code, len(attempt.started)) == ("succeeded", 0, len(hosts))
        assert cell.world.fleet.free_gpus("host-001") == [0, 1]

    examine(order_does_not_matter, st.integers(1, 5).flatmap(lambda n: st.permutations(range(1, n + 1))), examples)
