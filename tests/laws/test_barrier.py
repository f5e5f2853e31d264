"""Gangs begin together (1.15): by the events alone, an order says go when all parts were ready, and never before."""

from fairlease.core.order import host_order
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.job import AttemptStarted, PartReady, Rendezvous
from tests.dsl.cell import Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories


class Barrier:
    """Who was ready of each gang, and where it was told to meet, written down from the events alone."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[str, ...]] = {}
        self.ready: dict[str, set[str]] = {}
        self.at: dict[str, Rendezvous | None] = {}
        self.gone: set[str] = set()

    def see(self, cell: Cell, record: Record) -> None:
        for event in record.events:
            match event:
                case GangGranted():
                    self.parts[event.attempt] = tuple(part.host for part in event.parts)
                    self.ready[event.attempt], self.at[event.attempt] = set(), None
                case PartReady():
                    assert event.host in self.parts[event.attempt]
                    assert event.host not in self.ready[event.attempt], "ready twice, or after it ran"
                    assert (event.rendezvous is not None) == (event.host == self.parts[event.attempt][0])
                    self.at[event.attempt] = event.rendezvous or self.at[event.attempt]
                    self.ready[event.attempt].add(event.host)
                case AttemptStarted():
                    self.ready[event.attempt].add(event.host)
                case _:
                    pass
        for host in cell.world.ordered:
            for run in host_order(cell.world, host).runs:
                parts = self.parts[run.attempt]
                is_go = len(parts) == 1 or self.ready[run.attempt] == set(parts)
                assert run.is_go is is_go
                assert run.rendezvous == (self.at[run.attempt] if is_go else None)
                assert not (run.attempt in self.gone and not run.is_go), "what may begin may always begin"
                if run.is_go:
                    self.gone.add(run.attempt)


@at_length
def test_an_order_says_go_when_every_part_was_ready_and_never_before(examples: int) -> None:
    # rule: 1.15
    def parts_begin_together(story: Story) -> None:
        barrier = Barrier()
        play(story, Cell(barrier.see))

    examine(parts_begin_together, stories(), examples)
