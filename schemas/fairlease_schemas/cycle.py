"""One cycle: rank, place, preempt; three records in scope `alloc`, each decided at its own basis."""

from enum import StrEnum

import msgspec

from fairlease_schemas.ids import AttemptId, BudgetId, HostId, JobId, PoolId


class Licence(StrEnum):
    """What a claim may evict, given by the reason that ranked it (decisions.md 3.5-3.8).

    `drain` is a host's (7.2), `move` is nobody's: who leaves has room elsewhere (5.8).
    """

    DEBUG = "debug"
    UNDER_SHARE = "under-share"
    OVER_SHARE = "over-share"
    IDLE = "idle"
    DRAIN = "drain"
    MOVE = "move"


class RequestClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests that a cycle cannot tell apart (decisions.md 4.4), `count` of them waiting at the rank.

    `lane` is `debug` for those that asked for it, and then `account` is whose they are.
    `min_runtime_ms` 0 is idle work. `rest_ms` is what a fault left of their windows (7.7), absent for whole ones.
    """

    key: str
    budget: BudgetId
    hosts: int
    gpus_per_host: int
    min_runtime_ms: int
    count: int
    lane: str = ""
    account: str = ""
    rest_ms: int | None = None

    @property
    def window_ms(self) -> int:
        """The window of the next attempt of each."""
        return self.min_runtime_ms if self.rest_ms is None else self.rest_ms


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of one budget node in one pool, all GPU-milliseconds within the lookback.

    `entitled_gpu_ms` is already raised to the entitlement floor (2.3). `parent` is empty for a child
    of the root.
    """

    budget: BudgetId
    weight: int
    entitled_gpu_ms: int
    parent: BudgetId = ""
    used_gpu_ms: int = 0
    promised_gpu_ms: int = 0


class PoolRank(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pool's ranking: the nodes' numbers and, by partition, the classes in each leaf's own order.

    `lane` and `idle` are in order of first submission. `leaves` holds the budgeted classes of each
    leaf, leaves by id, classes by the first submission in each.
    """

    pool: PoolId
    schedulable_gpus: int
    nodes: tuple[NodeStanding, ...] = ()
    lane: tuple[RequestClass, ...] = ()
    leaves: tuple[RequestClass, ...] = ()
    idle: tuple[RequestClass, ...] = ()


class CycleRanked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cycle-ranked"):
    """A cycle began: who stands where, and who waits, as of the record's basis.

    A record names at most `max_classes_per_pool` classes, from the `first_class`-th on (by first
    submission, from 0); `is_cut` when more wait behind the `classes` it looked at.
    """

    cycle: int
    pools: tuple[PoolRank, ...] = ()
    first_class: int = 0
    classes: int = 0
    is_cut: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of one host, by index into its inventory."""

    host: HostId
    gpus: tuple[int, ...]


class GangGranted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="gang-granted"):
    """A whole gang got its GPUs; the address of this event is the attempt's fencing token.

    `licence` is what ranked the claim; `window_ms` is protected from now on. Parts that have not all started
    within `start_limit_ms` end the attempt (1.15); 0 where no limit was given.
    """

    job: JobId
    attempt: AttemptId
    number: int
    pool: PoolId
    parts: tuple[Part, ...]
    window_ms: int
    licence: Licence
    start_limit_ms: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A pick that placement could not place but that may evict: handed to preemption in rank order."""

    job: JobId
    pool: PoolId
    key: str
    licence: Licence


class CyclePlaced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cycle-placed"):
    """Placement is done with this cycle. `is_cut` when grants stopped at the record's bound.

    `claims` may evict now; `blocked` are the best picks of each pool that may evict nobody yet, in rank
    order: those that a promise may be made to.
    """

    cycle: int
    claims: tuple[Claim, ...] = ()
    blocked: tuple[Claim, ...] = ()
    is_cut: bool = False


class EvictionOrdered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="eviction-ordered"):
    """This attempt must leave for `claim`: notice and grace first, then stop.

    For a drain `claim` is empty and `drain` the host; `is_deadline` when its protection was not over (7.2).
    """

    attempt: AttemptId
    claim: JobId
    licence: Licence
    grace_ms: int
    lost_gpu_ms: int
    drain: HostId = ""
    is_deadline: bool = False


class ReservationMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reservation-made"):
    """These hosts are kept for `job` from now, for at most `for_ms` (decisions.md 5.6)."""

    job: JobId
    pool: PoolId
    hosts: tuple[HostId, ...]
    for_ms: int


class ReservationEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reservation-ended"):
    """The hosts are free for anyone again; `why` is `expired`, `not-waiting` or `drain`, then `cause` is the host."""

    job: JobId
    why: str
    cause: str = ""


class PromiseMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="promise-made"):
    """These hosts will be free for `job` in `start_in_ms` from this record's log time (decisions.md 6.2).

    `latest_in_ms` is the latest end there (window, exemption, time-out or stop under way) that proves
    it; evictions are ordered `grace_ms` + stop margin before the start. The licence is kept till then.
    """

    job: JobId
    pool: PoolId
    hosts: tuple[HostId, ...]
    start_in_ms: int
    latest_in_ms: int
    grace_ms: int
    licence: Licence


class PromiseEnd(StrEnum):
    """Why a promise is over without its use. All but `earlier` void it, by an event that `cause` names."""

    EARLIER = "earlier"
    CLAIM_LEFT = "claim-left"
    HOST_HELD = "host-held"
    POLICY_CHANGED = "policy-changed"
    TREE_CHANGED = "tree-changed"
    OUTAGE = "outage"
    BROKEN = "broken"
    DRAIN = "drain"
    MOVE = "move"


class PromiseEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="promise-ended"):
    """The promise was replaced by an earlier one, or voided by the event at `cause`. A grant uses it up by itself."""

    job: JobId
    why: PromiseEnd
    cause: str = ""


class CycleClosed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cycle-closed"):
    """The cycle is over; the next may begin."""

    cycle: int


class CycleAbandoned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cycle-abandoned"):
    """The step named did not come in time; what was granted stands, and a new cycle may begin."""

    cycle: int
    missing: str
