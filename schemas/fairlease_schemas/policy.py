"""The numbers a cell is run by, as a frozen record inside the log (decisions.md, Defaults)."""

import msgspec

from fairlease_schemas.ids import AccountId
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


class WindowBound(msgspec.Struct, frozen=True, kw_only=True):
    """For gangs of at most `up_to_gpus` GPUs: the shortest and the longest window."""

    up_to_gpus: int
    shortest_ms: int
    longest_ms: int


DEFAULT_WINDOW_BOUNDS = (
    WindowBound(up_to_gpus=8, shortest_ms=15 * MINUTE_MS, longest_ms=4 * HOUR_MS),
    WindowBound(up_to_gpus=64, shortest_ms=15 * MINUTE_MS, longest_ms=8 * HOUR_MS),
    WindowBound(up_to_gpus=1 << 30, shortest_ms=15 * MINUTE_MS, longest_ms=12 * HOUR_MS),
)


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All numbers of a policy; the defaults are those of decisions.md.

    `ranker` names the rule by which claims are ordered. `debug_*` rule the debug lane (3.1). `debug_spare_hosts`
    are kept empty in each pool for the lane and for gangs that lost a host (3.1, 7.7); a gang of
    `spare_yield_hosts` or more may have them too, 0 for none. The lane waits for checkpoints and window ends so
    much of `patience_ms` (5.5). `leaf_order` is that of leaves which ask for none, `fifo`, of their own (3.2).
    `half_life_ms` 0 is no fade (2.8). `margin_permille` is in standing (5.2), and `licence_window_permille` is how
    much of a side's entitlement a new window counts there at most, 0 for all of it. Leaves that stand below
    `due_first_permille` of 1 are due more: they come before those that do not, and may evict work of those that is past
    its window, 0 for none (3.2, 3.6). `move_gain_ms` is in how long a
    hole must be worth what moving the work beside it loses, 0 for no moves (5.8); `saving_*` rule 3.4: after how
    long a side saves, and how large a later claim may still pass, in GPUs x window; `promise_*` rule 6: how many at
    once, on how much of a pool, how long ahead at most for each host of the gang, 0 for any, and how much earlier a
    replacement must be; `brake_*` rule 5.7; `start_limit_ms` how long a gang may take to start where the contract
    does not say (1.15).
    `lease_*` rule how long a host may be silent (7.6), `fault_*` what follows a fault (7.7): how long healthy hosts
    are kept for the job, and after faults on how many hosts within which span it is held.
    `on_resume_refused` is what becomes of a job whose checkpoint does not fit (8.3): `fail`, also when it is empty, or
    `restart`, clean. `return_checks` are the checks that a host must have passed before it is given back (7.4).
    `change_gate` is what a change of policy or tree needs (10.1): nothing when it is empty, or `reported`, a proposal
    with a report that is at most `report_valid_ms` old and measured `report_span_ms` of the cell's own log.
    `max_draining_permille` is how much of a pool drains at once, `breaker_*` how much of it may fall to holds that
    nobody asked for within a span (7.3).
    `rank_period_ms` is how often a cycle comes while anybody waits; after one that decided nothing, the next is put off
    until `quiet_period_ms` have passed, unless it is 0, or something happens, or a protection or wait ends.
    `max_grants_per_cycle` and `max_classes_per_pool` bound one record (log.md L2); they count steps.
    """

    ranker: str = "budget-window"
    lookback_ms: int = 7 * DAY_MS
    entitlement_floor_ms: int = 24 * HOUR_MS
    window_bounds: tuple[WindowBound, ...] = DEFAULT_WINDOW_BOUNDS
    grace_cap_ms: int = 10 * MINUTE_MS
    stop_margin_ms: int = 30 * SECOND_MS
    reservation_slack_ms: int = 60 * SECOND_MS
    debug_max_gpus: int = 8
    debug_max_window_ms: int = 15 * MINUTE_MS
    debug_max_timeout_ms: int = HOUR_MS
    debug_per_person: int = 2
    debug_permille: int = 50
    debug_spare_hosts: int = 0
    spare_yield_hosts: int = 0
    debug_patience_permille: int = 1000
    non_resumable_cap_ms: int = 4 * HOUR_MS
    retry_backoff_ms: int = 30 * SECOND_MS
    retry_backoff_cap_ms: int = 10 * MINUTE_MS
    rank_period_ms: int = 10 * SECOND_MS
    step_limit_ms: int = 5 * SECOND_MS
    max_grants_per_cycle: int = 500
    max_classes_per_pool: int = 256
    half_life_ms: int = 0
    margin_permille: int = 20
    licence_window_permille: int = 0
    due_first_permille: int = 0
    leaf_order: str = "fifo"
    patience_ms: int = 5 * MINUTE_MS
    move_gain_ms: int = 0
    saving_after_ms: int = 4 * HOUR_MS
    saving_pass_gpu_ms: int = 64 * HOUR_MS
    promises_per_pool: int = 1
    promise_permille: int = 250
    promise_horizon_ms: int = 0
    promise_gain_ms: int = MINUTE_MS
    brake_count: int = 4
    brake_span_ms: int = DAY_MS
    start_limit_ms: int = 10 * MINUTE_MS
    lease_ms: int = MINUTE_MS
    lease_margin_ms: int = 15 * SECOND_MS
    fault_reserve_ms: int = 10 * MINUTE_MS
    fault_hosts: int = 3
    fault_span_ms: int = DAY_MS
    max_draining_permille: int = 250
    breaker_permille: int = 100
    breaker_span_ms: int = HOUR_MS
    on_resume_refused: str = ""
    return_checks: tuple[str, ...] = ()
    change_gate: str = ""
    report_valid_ms: int = DAY_MS
    report_span_ms: int = 2 * DAY_MS
    quiet_period_ms: int = 0


class PolicyChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="policy-changed"):
    """From here on decisions follow this policy. The first record of a log is one of these."""

    name: str
    author: AccountId
    policy: Policy
    reason: str = ""
