import pytest

from fairlease.runtime.clock import LIMIT_MS, BusClock, parse_bus_time_ms


class Machine:
    """A wall clock and a steady one, moved by hand."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000_000
        self.steady_ms = 0
        self.clock = BusClock(lambda: self.wall_ms, lambda: self.steady_ms)

    def pass_by(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms


def test_a_clock_is_not_trusted_before_it_was_compared() -> None:
    assert not Machine().clock.is_trusted()


@pytest.mark.parametrize(
    ("ahead_ms", "round_trip_ms", "is_trusted"),
    [
        (0, 1, True),
        (LIMIT_MS, 0, True),
        (-LIMIT_MS, 0, True),
        (LIMIT_MS + 1, 0, False),
        (-LIMIT_MS - 1, 0, False),
        (3_600_000, 1, False),
        (-2_000, 60_000, True),
    ],
    ids=["equal", "at the limit", "at the limit behind", "above", "above behind", "an hour", "paused in between"],
)
def test_five_seconds_from_the_bus_is_the_limit(ahead_ms: int, round_trip_ms: int, is_trusted: bool) -> None:
    machine = Machine()
    sent_ms = machine.wall_ms
    machine.pass_by(round_trip_ms)
    machine.clock.observe(sent_ms, sent_ms - ahead_ms, machine.wall_ms)
    assert machine.clock.is_trusted() is is_trusted


def test_a_jump_is_noticed_at_once_and_passing_time_is_none() -> None:
    machine = Machine()
    machine.clock.observe(machine.wall_ms, machine.wall_ms, machine.wall_ms)
    machine.pass_by(3_600_000)
    assert machine.clock.is_trusted()
    machine.wall_ms -= LIMIT_MS + 1
    assert not machine.clock.is_trusted()
    machine.clock.observe(machine.wall_ms, machine.wall_ms + 1, machine.wall_ms)
    assert machine.clock.is_trusted()


def test_the_bus_time_is_the_wall_time_less_what_it_is_ahead() -> None:
    machine = Machine()
    machine.clock.observe(machine.wall_ms, machine.wall_ms - 1_500, machine.wall_ms)
    machine.pass_by(10)
    assert machine.clock.bus_now_ms() == machine.wall_ms - 1_500


def test_nanoseconds_of_the_bus_are_read() -> None:
    assert parse_bus_time_ms("2026-11-29T19:14:46.413420385Z") == 1_795_979_686_413
