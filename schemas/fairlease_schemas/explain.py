"""What the explainer answers: read models, each with the log position it was read at.

Every view is a projection and can be made again from the log. Keys are public (docs/outputs): more
may be added, none renamed. Instants end in `_ms` since 1970, shares are exact permille integers.
"""

from typing import Any

import msgspec

from fairlease_schemas.job import Advice, Problem
from fairlease_schemas.simulated import BudgetFigures, Figures, Source

API_VERSION = "fairlease/v1"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What all answers begin with."""

    apiVersion: str = API_VERSION  # noqa: N815 - the key is spelled as Kubernetes spells it


class AsOf(msgspec.Struct, frozen=True, kw_only=True):
    """The place in the log that a view was read at, and the log time there."""

    epoch: int
    position: int
    log_time_ms: int


class DrainView(msgspec.Struct, frozen=True, kw_only=True):
    """A drain of a host (7.2): `state` is `queued`, `planned`, `draining` or `drained`.

    `empty_ms` is the calendar's word on when nothing is left, absent while the drain is queued: it has no time before
    it begins. `left` is how many attempts are there now, `deadline_ms` absent for none. A queued one waits `behind`
    the hosts of its pool that drain, by id.
    """

    owner: str
    state: str
    start_ms: int
    deadline_ms: int | None
    empty_ms: int | None
    left: int
    reason: str = ""
    external_id: str = ""
    behind: tuple[str, ...] = ()


class CommandAnswer(View, frozen=True, kw_only=True, tag_field="kind", tag="Answer"):
    """The answer to the command at `seq` of the account's inbox.

    `outcome` is `accepted`; `unchanged` when it asked for what was so already, or for the end of what is not there;
    `repeated` for a submission whose job is there already; or `refused`, and `problems` say why.
    `drain` is the host's drain after a command about one.
    """

    account: str
    seq: int
    verb: str
    outcome: str
    job: str = ""
    state: str = ""
    problems: tuple[Problem, ...] = ()
    advice: tuple[Advice, ...] = ()
    as_of: AsOf
    drain: DrainView | None = None


class FeedEvent(View, frozen=True, kw_only=True, tag_field="kind", tag="JobEvent"):
    """One step of a job's life: the event's tag, the state after it, and the exit code once there is one."""

    job: str
    event: str
    state: str
    at_ms: int
    attempt: str = ""
    hosts: tuple[str, ...] = ()
    end: str = ""
    exit_code: int | None = None
    as_of: AsOf


class HostEvent(View, frozen=True, kw_only=True, tag_field="kind", tag="HostEvent"):
    """Something happened to a host: the event's tag, and its holds and its drain as they stand after it.

    `holds` are written as `kind(owner): reason`. When a drain is called off, or its host given back, there is none.
    """

    host: str
    event: str
    at_ms: int
    holds: tuple[str, ...]
    drain: DrainView | None
    as_of: AsOf


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: where it ran, since when, how it ended; `detail` is what the agent said of an end without a code.

    One that was told to leave says for whom: `stop_for` is the job it made room for, `drained_from` the host that
    drains, `is_moved` that it had room elsewhere and made its host whole (5.8). `not_ready` are the hosts that a gang's
    start waits for, the first four in rank order of `late_hosts` in all, and none once the attempt is over;
    `rendezvous` is where its ranks meet.
    `evidence` are the digests of what is kept of its end, by host, of at most eight, the first to end first.
    """

    attempt: str
    number: int
    pool: str
    hosts: tuple[str, ...]
    gpus: int
    granted_ms: int
    started_ms: int | None
    ended_ms: int | None
    window_ms: int
    end: str
    exit_code: int | None
    token: str
    detail: str = ""
    stop_for: str = ""
    drained_from: str = ""
    not_ready: tuple[str, ...] = ()
    rendezvous: str = ""
    evidence: dict[str, str] = {}
    late_hosts: int = 0
    is_moved: bool = False


class JobView(View, frozen=True, kw_only=True, tag_field="kind", tag="Job"):
    """A job as it stands. `exit_code` is what `submit --wait` returns, absent while the job goes on.

    `held_by` is who holds it and `held_for` why, `cancelled_for` the job that it waited for and that did not end
    well. `array_index` is its place among the `array_count` jobs of its array, absent outside one. `rest_ms` is what
    a fault left of the window for its next attempt, absent where that has a whole one. `bound_to` is the pool that its
    checkpoint can be read in, empty for any; `is_clean` when its next attempt, or the present one, begins anew.
    """

    job: str
    account: str
    budget: str
    request_id: str
    state: str
    end: str
    exit_code: int | None
    submitted_ms: int
    hosts: int
    gpus_per_host: int
    min_runtime_ms: int
    timeout_ms: int
    lane: str
    digest: str
    attempts: tuple[AttemptView, ...]
    as_of: AsOf
    held_by: str = ""
    cancelled_for: str = ""
    array_index: int | None = None
    array_count: int = 0
    held_for: str = ""
    rest_ms: int | None = None
    bound_to: str = ""
    is_clean: bool = False


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the queue. `rank` counts waiting jobs in the order they would be tried, from 1.

    `start_by_ms` is when it will have started at the latest if nothing comes before it; kept to when `is_promised`.
    """

    job: str
    account: str
    budget: str
    state: str
    hosts: int
    gpus: int
    min_runtime_ms: int
    since_ms: int
    rank: int | None
    reason: str
    start_by_ms: int | None = None
    is_promised: bool = False


class QueueView(View, frozen=True, kw_only=True, tag_field="kind", tag="Queue"):
    """Running jobs first, then waiting ones by rank, then those that do not compete.

    `waiting`, `running` and `parked` (in backoff, held, or waiting on for other jobs) count all, `rows` may be cut.
    """

    waiting: int
    running: int
    rows: tuple[QueueRow, ...]
    as_of: AsOf
    parked: int = 0


class WhyReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason with its evidence; `positions` are the log positions that recorded it."""

    code: str
    since_ms: int
    until_ms: int | None
    evidence: dict[str, Any]
    positions: tuple[int, ...]


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the contract and when the job would then start."""

    change: dict[str, int]
    start_by_ms: int


class WhyText(msgspec.Struct, frozen=True, kw_only=True):
    """The same answer in words, made from the record alone."""

    en: str
    zh: str


class Why(View, frozen=True, kw_only=True, tag_field="kind", tag="Why"):
    """Why a job is where it is (decisions.md 9).

    `rank` counts from 1 those that wait in the order of being tried, `ahead_gpus` what those before it ask for.
    `start_by_ms` is its promise, or when those who were told to leave the hosts kept for it are gone.
    `held_by` is who holds it and `held_for` why, `cancelled_for` the job that it waited for and that did not end well.
    """

    job: str
    state: str
    as_of: AsOf
    rank: int | None
    start_by_ms: int | None
    reasons: tuple[WhyReason, ...]
    counterfactuals: tuple[Counterfactual, ...]
    text: WhyText
    held_by: str = ""
    cancelled_for: str = ""
    held_for: str = ""
    ahead_gpus: int | None = None


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One waiting job in the order of being tried: its partition, its leaf's standing, and what it may evict.

    `path` is the leaf and its ancestors with their standings in permille, leaf first. One whose leaf `is_due_more`
    comes before all budgeted ones that are not, whatever stands above them (3.2).
    """

    rank: int
    job: str
    budget: str
    pool: str
    partition: str
    licence: str
    gpus: int
    min_runtime_ms: int
    path: tuple[tuple[str, int], ...]
    is_due_more: bool = False
    reason: str


class RankView(View, frozen=True, kw_only=True, tag_field="kind", tag="Rank"):
    """Who is next, and by which numbers: as a cycle at this position would try them if each before were granted."""

    rows: tuple[RankRow, ...]
    as_of: AsOf


class PlannedEviction(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that would be told to leave, and the GPU-time that would be lost."""

    attempt: str
    budget: str
    lost_gpu_ms: int


class PlanView(View, frozen=True, kw_only=True, tag_field="kind", tag="Plan"):
    """What would happen to this contract now, if it were the next to be tried.

    `when` is `now`, `after-evictions`, `promised` (could be promised), `later` (no time can be named) or
    `refused`. `lost_gpu_ms` is what its evictions would cost others, and its own budget at least (2.6).
    """

    when: str
    pool: str = ""
    start_by_ms: int | None = None
    hosts: tuple[str, ...] = ()
    evictions: tuple[PlannedEviction, ...] = ()
    lost_gpu_ms: int = 0
    code: str = ""
    evidence: dict[str, Any] = {}
    problems: tuple[Problem, ...] = ()
    advice: tuple[Advice, ...] = ()
    text: WhyText
    as_of: AsOf


class ShareRow(msgspec.Struct, frozen=True, kw_only=True):
    """One budget node in one pool; `standing_permille` is (used + promised) over entitled, absent at entitled 0."""

    budget: str
    parent: str
    depth: int
    weight: int
    pool: str
    entitled_gpu_ms: int
    used_gpu_ms: int
    promised_gpu_ms: int
    standing_permille: int | None
    held_gpus: int
    waiting_jobs: int


class BudgetNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one budget is set: what was given to `budget set` and `budget member`; a key at its default is left out.

    `leads` and `members` are the roles given at this node; those given above it hold here too. `more_accounts`
    are so many that are not listed. It `is_everybodys` where no role was ever given on the path.
    """

    budget: str
    order: str
    parent: str = ""
    weight: int = 1
    max_protected_permille: int = 0
    burst_permille: int = 0
    leads: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    more_accounts: int = 0
    is_everybodys: bool = False


class SharesView(View, frozen=True, kw_only=True, tag_field="kind", tag="Shares"):
    """The tree in depth-first order, one row per node and pool; `nodes` are the nodes' own settings, in that order."""

    rows: tuple[ShareRow, ...]
    as_of: AsOf
    nodes: tuple[BudgetNode, ...] = ()


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """One host: its devices, what holds them, and its holds as `kind(owner): reason`."""

    host: str
    pool: str
    model: str
    block: str
    gpus: int
    free_gpus: int
    is_simulated: bool
    holds: tuple[str, ...]
    attempts: tuple[str, ...]
    drain: DrainView | None = None


class HostsView(View, frozen=True, kw_only=True, tag_field="kind", tag="Hosts"):
    """Every registered host, by id.

    `tripped` are the pools whose circuit breaker has stopped the holds of silent hosts (7.3), and since when.
    """

    rows: tuple[HostRow, ...]
    as_of: AsOf
    tripped: dict[str, int] = {}


class PolicyView(View, frozen=True, kw_only=True, tag_field="kind", tag="Policy"):
    """The policy in force, by its name, with all its numbers."""

    name: str
    policy: dict[str, Any]
    as_of: AsOf


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """A report on a proposal, by its digest: when it came, from whom, and what it found.

    `before` is without the proposal, `after` with it; `budgets` are the few whose fulfilment differs most, in permille.
    """

    digest: str
    at_ms: int
    author: str
    source: Source
    span_ms: int
    before: Figures
    after: Figures
    budgets: tuple[BudgetFigures, ...]


class NumberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number of the policy that a change would leave otherwise: `now` in force, or by the change before it."""

    number: str
    now: Any
    then: Any


class ProposalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One open proposal (10.1): `position`, `log_digest` and `change` are what a report must name.

    `changes` are the commands that it would carry out, and `numbers` for each of them the policy's numbers that would
    be others: what a command leaves out is the default. `forced_by` is who wants it without a report, else empty.
    """

    proposal: str
    author: str
    at_ms: int
    position: int
    log_digest: str
    change: str
    changes: tuple[dict[str, Any], ...]
    numbers: tuple[tuple[NumberChange, ...], ...] = ()
    reports: tuple[ReportRow, ...]
    forced_by: str
    is_stale: bool


class ProposalsView(View, frozen=True, kw_only=True, tag_field="kind", tag="Proposals"):
    """Open proposals of changes, by name."""

    rows: tuple[ProposalRow, ...]
    as_of: AsOf


class Trouble(View, frozen=True, kw_only=True, tag_field="kind", tag="Trouble"):
    """A question that has no answer: `code` is `unknown-job`, `unknown-question` or `bad-question`."""

    code: str
    text: str


class Health(View, frozen=True, kw_only=True, tag_field="kind", tag="Health"):
    """A service about itself. `is_ready` once it has folded the log to the end it saw at its start.

    `version` is its release, empty where nobody knows it; at `metrics_port` its machine answers for its figures, 0 for
    nowhere.
    `closed` is why it takes no new work now, empty when it does. `is_stalled`: the bus answers, and the log took none
    of two records in a row, which only a new start of the bus mends.
    """

    service: str
    replica: str
    pid: int
    is_ready: bool
    position: int
    records_written: int
    moved: int
    fold_version: str
    version: str = ""
    metrics_port: int = 0
    closed: str = ""
    is_stalled: bool = False


Reply = (
    CommandAnswer
    | FeedEvent
    | HostEvent
    | JobView
    | QueueView
    | Why
    | RankView
    | PlanView
    | SharesView
    | HostsView
    | PolicyView
    | ProposalsView
    | Trouble
    | Health
)
