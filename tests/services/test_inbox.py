from hypothesis import given
from hypothesis import strategies as some

from fairlease.runtime.inbox import MAX_BATCH, MAX_BATCH_BYTES, MAX_WAITING, Pending
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.envelope import Answer


def _answer(stream: str, seq: int, time_ms: int = 0, size: int = 1) -> Answer:
    return Answer(stream=stream, seq=seq, time_ms=time_ms, who="a", said=CancelJob(job="j" * size))


def _places(answers: tuple[Answer, ...]) -> list[tuple[str, int]]:
    return [(answer.stream, answer.seq) for answer in answers]


def test_messages_come_by_time_then_stream_then_sequence() -> None:
    pending = Pending()
    for answer in (_answer("b", 1, 5), _answer("b", 2, 9), _answer("a", 7, 9), _answer("a", 8, 9), _answer("c", 1, 1)):
        pending.add(answer)
    assert _places(pending.batch()) == [("c", 1), ("b", 1), ("a", 7), ("a", 8), ("b", 2)]


def test_what_the_fold_answered_is_dropped() -> None:
    pending = Pending()
    for seq in range(1, 6):
        pending.add(_answer("a", seq, seq))
        pending.add(_answer("b", seq, seq))
    pending.drop({"a": 3, "b": 0}.__getitem__)
    assert _places(pending.batch()) == [("b", 1), ("b", 2), ("b", 3), ("a", 4), ("b", 4), ("a", 5), ("b", 5)]
    assert len(pending) == 7


def test_a_batch_is_bounded_in_messages_and_in_bytes() -> None:
    pending = Pending()
    for seq in range(1, 200):
        pending.add(_answer("a", seq))
    assert len(pending.batch()) == MAX_BATCH
    assert len(pending.batch(1)) == 1
    large = Pending()
    for seq in range(1, 10):
        large.add(_answer("a", seq, size=MAX_BATCH_BYTES // 3))
    assert len(large.batch()) == 2


def test_one_message_above_the_bound_is_still_decided() -> None:
    pending = Pending()
    pending.add(_answer("a", 1, size=2 * MAX_BATCH_BYTES))
    assert _places(pending.batch()) == [("a", 1)]


def test_of_timers_only_the_newest_counts() -> None:
    pending = Pending("timers")
    for seq in range(1, 100):
        pending.add(_answer("timers", seq, seq))
    assert (_places(pending.batch()), len(pending)) == ([("timers", 99)], 1)


def test_a_repeat_is_dropped() -> None:
    pending = Pending()
    for seq in (1, 2, 2, 1, 3):
        pending.add(_answer("a", seq))
    assert _places(pending.batch()) == [("a", 1), ("a", 2), ("a", 3)]


def test_what_had_no_effect_is_forgotten() -> None:
    pending = Pending()
    for seq in (1, 2, 3):
        pending.add(_answer("a", seq))
    pending.forget(pending.batch(2))
    assert _places(pending.batch()) == [("a", 3)]


def test_reading_pauses_while_too_much_waits() -> None:
    pending = Pending()
    for seq in range(MAX_WAITING):
        assert pending.room("a").is_set()
        pending.add(_answer("a", seq + 1))
    assert not pending.room("a").is_set()
    assert pending.room("b").is_set(), "what one account sends keeps nobody else waiting"
    assert pending.full.is_set()
    pending.drop(lambda _stream: MAX_WAITING)
    assert pending.room("a").is_set()
    assert not pending.full.is_set()


def test_streams_take_turns_and_what_was_taken_comes_by_time() -> None:
    pending = Pending()
    for seq in range(1, 1_001):
        pending.add(_answer("flood", seq, seq))
    pending.add(_answer("ann", 1, 2_000))
    pending.add(_answer("bob", 1, 2))
    assert _places(pending.batch(4)) == [("flood", 1), ("bob", 1), ("flood", 2), ("ann", 1)]
    assert ("ann", 1) in _places(pending.batch()), "nobody waits behind another's thousand"


@given(some.lists(some.tuples(some.sampled_from("abc"), some.integers(0, 9)), max_size=40), some.integers(1, 12))
def test_a_batch_is_a_prefix_of_every_stream_whatever_the_clock_did(
    arrivals: list[tuple[str, int]], limit: int
) -> None:
    pending = Pending()
    expected: dict[str, list[int]] = {}
    for seq, (stream, time_ms) in enumerate(arrivals, start=1):
        pending.add(_answer(stream, seq, time_ms))
        expected.setdefault(stream, []).append(seq)
    batch = pending.batch(limit)
    assert len(batch) == min(limit, len(arrivals))
    for stream, sequences in expected.items():
        taken = [answer.seq for answer in batch if answer.stream == stream]
        assert taken == sequences[: len(taken)]
