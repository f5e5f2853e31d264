"""Canonical bytes: whatever a record says, it is written in one way and its id names exactly that."""

import msgspec
from hypothesis import strategies as st

from fairlease.core.job import JobEvent
from fairlease.core.world import World
from fairlease_schemas import codec, job
from fairlease_schemas.commands import VERBS, SubmitJob
from fairlease_schemas.contract import Spec, body, read_contract
from fairlease_schemas.envelope import MAX_RECORD_BYTES, Address, Answer, Event, Record, Said
from fairlease_schemas.explain import Reply
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.orders import HostOrder
from fairlease_schemas.reports import KINDS
from fairlease_schemas.units import MAX_LENGTH_MS, format_length, parse_length_ms
from tests.dsl.cell import Cell
from tests.laws.anything import anything
from tests.laws.examine import at_length, examine

RECORDS = st.builds(
    Record,
    v=st.just(1),
    at_ms=st.integers(0, 2**62),
    by=st.sampled_from(("admission", "placement")),
    epoch=st.integers(1, 9),
    basis=st.integers(0, 2**62),
    policy=anything(str),
    causes=st.lists(anything(Address), max_size=3).map(tuple),
    answers=st.lists(anything(Answer), max_size=2).map(tuple),
    events=st.lists(anything(Event), max_size=3).map(tuple),
)


@at_length
def test_a_record_is_read_back_as_it_was_written(examples: int) -> None:
    def bytes_are_canonical(record: Record) -> None:
        sealed, data = codec.sealed(record)
        assert len(data) < MAX_RECORD_BYTES
        assert codec.read_record(data) == sealed
        assert codec.sealed(codec.read_record(data)) == (sealed, data)
        assert codec.canonical(msgspec.json.decode(data)) == data

    examine(bytes_are_canonical, RECORDS, examples)


@at_length
def test_another_record_has_another_id(examples: int) -> None:
    def ids_differ(pair: tuple[Record, Record]) -> None:
        one, other = pair
        assert (codec.sealed(one)[0].id == codec.sealed(other)[0].id) == (one == other)

    examine(ids_differ, st.tuples(RECORDS, RECORDS), examples)


@at_length
def test_commands_reports_orders_and_answers_are_read_back(examples: int) -> None:
    kinds = [Said, HostOrder, Reply, *(kind for kind in (*VERBS.values(), *KINDS.values()) if kind is not SubmitJob)]

    def messages_are_canonical(drawn: tuple[int, object]) -> None:
        number, value = drawn
        data = codec.canonical(value)
        assert msgspec.json.decode(data, type=kinds[number]) == value

    one_of = [anything(kind) for kind in kinds]
    chosen = st.integers(0, len(kinds) - 1).flatmap(lambda n: st.tuples(st.just(n), one_of[n]))
    examine(messages_are_canonical, chosen, examples)


@at_length
def test_a_fold_of_any_events_neither_fails_nor_chooses(examples: int) -> None:
    """`evolve` writes down what happened, also what no decision of today would write (STYLE.md, shapes)."""
    cell = Cell().hosts(1, gpus=4).budgets(a=1)
    jobs = [cell.submit(f"r{n}", gpus_per_host=2, max_retries=1) for n in range(4)]
    cell.gone(jobs[0], job.End.FAILED, 1)
    before = cell.world.dump()

    def fold_is_total(drawn: list[tuple[Event, str, int]]) -> None:
        world = World.load(before)
        for event, name, number in drawn:
            whose = {"job": name} if hasattr(event, "job") else {"attempt": attempt_id(name, number)}
            known = msgspec.structs.replace(event, **whose)
            position = world.position + 1
            world.apply(msgspec.structs.replace(EMPTY, at_ms=cell.now_ms + position, events=(known,)), position)
        assert World.load(world.dump()).digest() == world.digest()

    events = st.tuples(anything(JobEvent), st.sampled_from((*jobs, "job-nobody")), st.integers(1, 2))
    examine(fold_is_total, st.lists(events, max_size=8), examples)


@at_length
def test_any_data_is_a_contract_or_is_told_what_is_wrong(examples: int) -> None:
    def reading_never_raises(data: object) -> None:
        contract, problems = read_contract(data)
        assert (contract is None) == bool(problems)
        if contract is not None:
            codec.canonical(body(contract))
        for problem in problems:
            codec.canonical(msgspec.to_builtins(problem))

    examine(reading_never_raises, _DOCUMENTS, examples)


@at_length
def test_a_length_is_read_back_as_it_was_written(examples: int) -> None:
    def lengths_survive(length_ms: int) -> None:
        assert parse_length_ms(format_length(length_ms)) == length_ms

    examine(lengths_survive, st.integers(0, MAX_LENGTH_MS), examples)


EMPTY = Record(v=1, at_ms=0, by="admission", epoch=1, basis=0, policy="", causes=(), answers=(), events=())
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything(str) | st.sampled_from(("30m", "1h", "a")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
_KEYS = st.sampled_from((*Spec.model_fields, "e\u0301", "x"))
_SPECS = st.dictionaries(_KEYS, _VALUES, max_size=8).map(
    lambda spec: {"budget": "a", "min_runtime": "30m", "timeout": "1h", "command": ["true"]} | spec
)
_DOCUMENTS = _SPECS.map(lambda spec: {"apiVersion": "fairlease/v1", "kind": "Job", "spec": spec}) | _VALUES
