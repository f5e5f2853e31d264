from collections.abc import Callable

import pytest

from fairlease.simulator.rankers.plain import Priority, Waiting, fifo, sjf, srsf, srtf, static_priority

JOBS = (
    Waiting(1, submit_ms=0, duration_ms=50, left_ms=10, gpus=8, priority=Priority.LOW),
    Waiting(2, submit_ms=0, duration_ms=30, left_ms=30, gpus=1, priority=Priority.HIGH),
    Waiting(3, submit_ms=5, duration_ms=20, left_ms=20, gpus=2, priority=Priority.NORMAL),
    Waiting(4, submit_ms=5, duration_ms=20, left_ms=20, gpus=2, priority=Priority.NORMAL),
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param(fifo, [1, 2, 3, 4], id="arrival, then the place in the trace"),
        pytest.param(static_priority, [2, 3, 4, 1], id="stated priority"),
        pytest.param(sjf, [3, 4, 2, 1], id="whole duration"),
        pytest.param(srtf, [1, 3, 4, 2], id="remaining time"),
        pytest.param(srsf, [2, 3, 4, 1], id="remaining time x GPUs"),
    ],
)
def test_an_order_ends_in_the_place_in_the_trace(
    order: Callable[[Waiting], tuple[int, ...]], expected: list[int]
) -> None:
    late_first = JOBS[::-1]
    assert [job.number for job in sorted(late_first, key=order)] == expected
