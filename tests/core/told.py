"""Jobs that have a past, and the figures of a story: words of the tests of metrics. Times are ms after `T0`."""

from fairlease.core.job import Attempt, Job, Phase
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Figures, Meter
from fairlease.core.metrics.scope import EVERYBODY, Scope
from fairlease.core.world import World
from fairlease_schemas.codec import read_record
from fairlease_schemas.cycle import Licence
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import End
from tests.dsl.cell import MINUTE, T0, Cell, on, request


def run(number: int, granted: int, ended: int | None = None, end: End | None = None, **fields: object) -> Attempt:
    """An attempt on two GPUs of the first host; `started` and `saved` are instants like the others."""
    started, saved = fields.pop("started", granted), fields.pop("saved", None)
    instants = {
        "started_ms": None if started is None else T0 + started,  # type: ignore[operator] # an instant
        "checkpoint_ms": 0 if saved is None else T0 + saved,  # type: ignore[operator] # an instant
    }
    defaults = {
        "id": attempt_id("job-x", number),
        "number": number,
        "pool": "h100",
        "parts": (on(1, 0, 1),),
        "token": Address(1, number, 0),
        "granted_ms": T0 + granted,
        "window_ms": 30 * MINUTE,
        "licence": Licence.UNDER_SHARE,
        "end": end,
        "ended_ms": 0 if ended is None else T0 + ended,
    }
    return Attempt(**(defaults | instants | fields))  # type: ignore[arg-type] # fields by name


def past(*attempts: Attempt, phase: Phase = Phase.WAITING, name: str = "job-x", **fields: object) -> Job:
    """A job of leaf `a` with these attempts; what is not said of its request is as in `request`."""
    known = {"account", "budget", "submitted_ms", "ended_ms", "preemptions_ms"}
    own = {key: fields.pop(key) for key in list(fields) if key in known}
    defaults = {
        "id": name,
        "account": "ann",
        "budget": "a",
        "request_id": name,
        "digest": "",
        "request": request(**({"pools": ("h100",)} | fields)),
        "admitted": Address(1, 1, 0),
        "submitted_ms": T0,
        "phase": phase,
        "attempts": attempts,
    }
    return Job(**(defaults | own))  # type: ignore[arg-type] # fields by name


def figures(cell: Cell, until: int, since: int = -1, scope: Scope = EVERYBODY) -> Figures:
    """What the meter says of the cell's log, from just before its first record on."""
    world, meter = World(), Meter(Period(T0 + since, T0 + until), scope)
    for position, record in enumerate(map(read_record, cell.records), start=1):
        if record.at_ms > T0 + until:
            break
        world.apply(record, position)
        meter.take(world, record)
    return meter.report(world)
