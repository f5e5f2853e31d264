"""Random small cells that live: their agents start what is granted and stop in time what must leave.

A life is data that a failing test can print: a cell, its tree and policy, and what people do to it. Jobs,
hosts, budgets are named by number, taken modulo what there is, so that every life keeps its meaning while
it is made smaller. Every attempt starts, runs, saves and stops as its submission says; a stop takes a part
of grace + stop margin, up to all of it. Time goes from one thing that happens to the next.
"""

from typing import NamedTuple

from hypothesis import strategies as st

from fairlease_schemas import codec
from fairlease_schemas.commands import (
    CancelJob,
    ChangeBudget,
    ChangeMember,
    ChangePolicy,
    CordonHost,
    RequestDrain,
    ReturnHost,
)
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import End
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.reports import HostUp
from tests.dsl.cell import DAY, HOUR, MINUTE, SECOND, inventory, submitted
from tests.dsl.scenario import Habit, Tended

GPUS = 4
PEOPLE = ("ann", "bob", "eve")
ANY_WINDOW = (WindowBound(up_to_gpus=1 << 30, shortest_ms=1, longest_ms=12 * HOUR),)


class Submit(NamedTuple):
    """A job and how it behaves: starts after `starts_ms`, runs `runs_ms`, takes `stop_permille` of its time to stop."""

    leaf: int
    who: int = 0
    hosts: int = 1
    gpus: int = 1
    window_ms: int = 30 * MINUTE
    runs_ms: int = HOUR
    timeout_ms: int = 6 * HOUR
    grace_ms: int = 30 * SECOND
    saves_ms: int = 0
    starts_ms: int = 0
    stop_permille: int = 1000
    lane: str = ""
    pools: tuple[str, ...] = ()
    retries: int = 0
    end: End = End.SUCCEEDED
    is_resumable: bool = True
    faults_ms: int = 0


class Cancel(NamedTuple):
    """Somebody's job is cancelled by whoever submitted it."""

    job: int


class Hold(NamedTuple):
    """A host is cordoned, or given back."""

    host: int
    is_cordon: bool


class Fault(NamedTuple):
    """A host says that its devices are others: held while work of before runs there."""

    host: int
    boot: int


class Drain(NamedTuple):
    """The owner of a host drains it from so long ahead on, or gives it back (absent)."""

    host: int
    ahead_ms: int | None


class Share(NamedTuple):
    """A node of the tree gets another weight or caps."""

    node: int
    weight: int
    protected_permille: int
    burst_permille: int


class Rules(NamedTuple):
    """Another policy."""

    number: int


class Wait(NamedTuple):
    """Time passes."""

    ms: int


Step = Submit | Cancel | Hold | Fault | Drain | Share | Rules | Wait


class Life(NamedTuple):
    """A cell of `hosts` (in blocks of `block`), the tree as (name, parent, weight), policies, and the steps.

    The last `far` hosts are a pool of their own, `l40s`.
    """

    hosts: int
    far: int
    block: int
    tree: tuple[tuple[str, str, int, int, int], ...]
    policies: tuple[Policy, ...]
    steps: tuple[Step, ...]


class Law:
    """What is watched in a living cell: told of every record before and after it is folded."""

    def before(self, cell: "Living", record: Record) -> None:
        """The world is still without the record."""

    def after(self, cell: "Living", record: Record) -> None:
        """The record is folded."""

    def at_rest(self, cell: "Living") -> None:
        """Nobody has anything to say."""


class Living(Tended):
    """A cell that lives the life."""

    def __init__(self, life: Life, *laws: Law) -> None:
        self.life = life
        self.laws = laws
        self.jobs: list[str] = []
        super().__init__()
        self.say(ChangePolicy(name="policy-0", policy=life.policies[0]), "lead")
        for number in range(1, life.hosts + 1):
            self._boot(number, 1)
        for name, parent, weight, protected, burst in life.tree:
            caps = {"max_protected_permille": protected, "burst_permille": burst}
            self.say(ChangeBudget(budget=name, parent=parent, weight=weight, **caps), "lead")
            self.say(ChangeMember(budget=name, account="*", role="member"), "lead")
        parents = {parent for _, parent, *_ in life.tree}
        self.leaves = [name for name, *_ in life.tree if name not in parents]

    def append(self, data: bytes) -> Record:
        record = codec.read_record(data)
        for law in self.laws:
            law.before(self, record)
        super().append(data)
        for law in self.laws:
            law.after(self, record)
        return record

    def live(self) -> "Living":
        """The whole life."""
        for step in self.life.steps:
            self.do(step)
            self.rest()
        return self

    def rest(self) -> None:
        """Everybody decides, agents look at their orders, and the laws look on."""
        super().rest()
        for law in self.laws:
            law.at_rest(self)

    # what people do ------------------------------------------------------------------------------------
    def do(self, step: Step) -> None:
        match step:
            case Submit():
                self._submit(step)
            case Cancel():
                if self.jobs:
                    job = self.jobs[step.job % len(self.jobs)]
                    self.say(CancelJob(job=job), self.world.jobs[job].account, settle=False)
            case Hold():
                host = f"host-{step.host % self.life.hosts + 1:03d}"
                said = CordonHost(host=host) if step.is_cordon else ReturnHost(host=host)
                self.say(said, "lead", settle=False)
            case Fault():
                self._boot(step.host % self.life.hosts + 1, step.boot)
            case Drain():
                host = f"host-{step.host % self.life.hosts + 1:03d}"
                if step.ahead_ms is None:
                    self.say(ReturnHost(host=host), "bot", settle=False)
                else:
                    self.say(RequestDrain(host=host, not_before_ms=self.now_ms + step.ahead_ms), "bot", settle=False)
            case Share():
                name, parent, *_ = self.life.tree[step.node % len(self.life.tree)]
                caps = {"max_protected_permille": step.protected_permille, "burst_permille": step.burst_permille}
                said = ChangeBudget(budget=name, parent=parent, weight=step.weight, **caps)
                self.say(said, "lead", settle=False)
            case Rules():
                policy = self.life.policies[step.number % len(self.life.policies)]
                self.say(ChangePolicy(name=f"policy-{len(self.records)}", policy=policy), "lead", settle=False)
            case Wait():
                self.wait(step.ms)

    def _submit(self, step: Submit) -> None:
        who, budget = PEOPLE[step.who % len(PEOPLE)], self.leaves[step.leaf % len(self.leaves)]
        name = f"r{len(self.jobs)}"
        said = submitted(
            name,
            budget,
            hosts=min(step.hosts, self.life.hosts),
            gpus_per_host=GPUS if min(step.hosts, self.life.hosts) > 1 else step.gpus,
            pools=tuple(pool for pool in step.pools if pool in self.world.fleet.pools()),
            min_runtime_ms=step.window_ms,
            timeout_ms=step.timeout_ms,
            grace_ms=step.grace_ms,
            checkpoint_interval_ms=step.saves_ms,
            lane=step.lane,
            max_retries=step.retries,
            is_resumable=step.is_resumable,
        )
        self.say(said, who, settle=False)
        job = job_id(who, budget, name)
        if job in self.world.jobs:
            self.jobs.append(job)
            self.habits[job] = Habit(
                step.runs_ms, step.starts_ms, step.saves_ms, step.stop_permille, None, step.end, step.faults_ms
            )

    def _boot(self, number: int, boot: int) -> None:
        pool = "l40s" if number > self.life.hosts - self.life.far else "h100"
        devices = inventory(number, GPUS, pool, self.life.block)
        gpus = tuple(f"{gpu}-{boot}" for gpu in devices.gpus)
        said = HostUp(incarnation=f"boot-{boot}", inventory=type(devices)(**_fields(devices) | {"gpus": gpus}))
        self.say(said, f"host-{number:03d}", settle=False)


def _fields(devices: object) -> dict[str, object]:
    return {name: getattr(devices, name) for name in devices.__struct_fields__}  # type: ignore[attr-defined] # a struct


_TREES = (
    (("a", "", 1), ("b", "", 1)),
    (("a", "", 1), ("b", "", 2), ("c", "", 3)),
    (("o", "", 1), ("p", "", 1), ("oa", "o", 1), ("ob", "o", 2), ("pa", "p", 1), ("pb", "p", 1)),
    (("o", "", 3), ("b", "", 1), ("oa", "o", 1), ("ob", "o", 1), ("obx", "ob", 1), ("oby", "ob", 3)),
)
_CAPS = st.sampled_from((0, 0, 0, 0, 500, 1000, 2000))
_WEIGHT = st.integers(1, 4)


@st.composite
def trees(draw: st.DrawFn, *, has_caps: bool = True) -> tuple[tuple[str, str, int, int, int], ...]:
    """One of four shapes, two to four leaves, other weights, and seldom caps."""
    shape = draw(st.sampled_from(_TREES))
    caps = _CAPS if has_caps else st.just(0)
    return tuple((name, parent, draw(_WEIGHT), draw(caps), draw(caps)) for name, parent, _ in shape)


def policies(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Policy]:
    """A policy for short lives: any window, ranks once a minute or less often, small patience."""
    chosen: dict[str, st.SearchStrategy[object]] = {
        "lookback_ms": st.sampled_from((2 * HOUR, DAY, 7 * DAY)),
        "entitlement_floor_ms": st.sampled_from((0, HOUR, DAY)),
        "half_life_ms": st.sampled_from((0, 0, 0, HOUR, DAY)),
        "margin_permille": st.sampled_from((0, 20, 200)),
        "patience_ms": st.sampled_from((0, 5 * MINUTE, 30 * MINUTE)),
        "saving_after_ms": st.sampled_from((30 * MINUTE, 4 * HOUR)),
        "saving_pass_gpu_ms": st.sampled_from((0, HOUR)),
        "promises_per_pool": st.sampled_from((0, 1, 1, 2)),
        "promise_permille": st.sampled_from((250, 500, 1000)),
        "promise_horizon_ms": st.sampled_from((0, 0, 30 * MINUTE)),
        "brake_count": st.sampled_from((1, 2, 4)),
        "rank_period_ms": st.sampled_from((10 * MINUTE, HOUR)),
        "window_bounds": st.just(ANY_WINDOW),
        "reservation_slack_ms": st.sampled_from((0, MINUTE)),
        "debug_spare_hosts": st.sampled_from((0, 0, 0, 1, 2)),
        "spare_yield_hosts": st.sampled_from((0, 0, 1, 2, 3)),
        "debug_patience_permille": st.sampled_from((1000, 1000, 500, 0)),
        "licence_window_permille": st.sampled_from((0, 0, 0, 1, 100)),
        "due_first_permille": st.sampled_from((0, 0, 500, 1000, 2000)),
        "leaf_order": st.sampled_from(("fifo", "fifo", "smallest", "least-attained")),
        "move_gain_ms": st.sampled_from((0, 0, MINUTE, 4 * HOUR)),
    }
    return st.builds(Policy, **(chosen | fields))


_WINDOWS = st.sampled_from((0, MINUTE, 5 * MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR))


def submits(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Submit]:
    """A submission with these fields drawn and the others at their defaults."""
    return st.fixed_dictionaries(fields).map(lambda drawn: Submit(**drawn))  # type: ignore[arg-type] # as drawn


SUBMITS = submits(
    leaf=st.integers(0, 3),
    who=st.integers(0, 2),
    hosts=st.sampled_from((1, 1, 1, 2, 3)),
    gpus=st.sampled_from((4, 2, 1, 3, 4)),
    window_ms=_WINDOWS,
    runs_ms=st.sampled_from((MINUTE, 20 * MINUTE, HOUR, 3 * HOUR, 9 * HOUR)),
    timeout_ms=st.sampled_from((30 * MINUTE, 2 * HOUR, 6 * HOUR)),
    grace_ms=st.sampled_from((0, 30 * SECOND, 30 * SECOND, 5 * MINUTE)),
    saves_ms=st.sampled_from((0, 0, 3 * MINUTE, 20 * MINUTE)),
    starts_ms=st.sampled_from((0, 20 * SECOND)),
    stop_permille=st.sampled_from((0, 500, 1000)),
    pools=st.sampled_from(((), (), ("h100",), ("l40s", "h100"))),
    retries=st.sampled_from((0, 1)),
    end=st.sampled_from((End.SUCCEEDED, End.SUCCEEDED, End.FAILED)),
    faults_ms=st.sampled_from((0, 0, 0, 2 * MINUTE, 40 * MINUTE)),
)
DEBUGS = submits(
    leaf=st.integers(0, 3),
    who=st.integers(0, 2),
    gpus=st.sampled_from((1, 2, 4)),
    window_ms=st.sampled_from((MINUTE, 10 * MINUTE)),
    runs_ms=st.sampled_from((5 * MINUTE, HOUR)),
    timeout_ms=st.just(HOUR),
    lane=st.just("debug"),
)
WAITS = st.builds(Wait, ms=st.sampled_from((1, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR)))
DRAINS = st.builds(
    Drain, host=st.integers(0, 5), ahead_ms=st.sampled_from((None, 0, 5 * MINUTE, 40 * MINUTE, 3 * HOUR))
)
_SELDOM = st.one_of(
    st.builds(Cancel, job=st.integers(0, 30)),
    st.builds(Hold, host=st.integers(0, 5), is_cordon=st.booleans()),
    st.builds(Fault, host=st.integers(0, 5), boot=st.integers(1, 2)),
    st.builds(Share, node=st.integers(0, 5), weight=st.integers(1, 4), protected_permille=_CAPS, burst_permille=_CAPS),
    st.builds(Rules, number=st.integers(0, 1)),
)


def often(**weights: int) -> st.SearchStrategy[Step]:
    """Steps by weight: submissions, debug work, waits, drains, and what happens seldom."""
    kinds = {"submits": SUBMITS, "debugs": DEBUGS, "waits": WAITS, "drains": DRAINS, "seldom": _SELDOM}
    names = [name for name, weight in weights.items() for _ in range(weight)]
    return st.sampled_from(names).flatmap(lambda name: kinds[name])


STEPS = often(submits=10, waits=5, debugs=2, seldom=2)


POLICIES = policies()


def lives(
    steps: st.SearchStrategy[Step] = STEPS,
    policy: st.SearchStrategy[Policy] = POLICIES,
    *,
    least: int = 12,
    has_caps: bool = True,
) -> st.SearchStrategy[Life]:
    """Any life of that many steps or up to three times as many; it ends with a long wait."""
    return st.builds(
        Life,
        hosts=st.sampled_from((4, 3, 2, 1, 5)),
        far=st.sampled_from((0, 0, 1)),
        block=st.integers(1, 3),
        tree=trees(has_caps=has_caps),
        policies=st.tuples(policy, policy),
        steps=st.lists(steps, min_size=least, max_size=3 * least).map(lambda some: (*some, Wait(4 * HOUR))),
    )
