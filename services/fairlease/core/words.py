"""The sentences of answers, in English and Chinese, from one table: numbers and names come from records alone.

Each sentence names the fields of the evidence that make its reason and no other; `explain` shows those
fields and no more. A sentence that needs a field which the record has not is a defect, and a test
compares the table with the closed list of reasons. A number is written with what it counts, `{free_gpus:GPU}`,
because English says one GPU and two GPUs; Chinese says the number alone.
"""
# ruff: noqa: RUF001 - Chinese is written with its own punctuation

from itertools import pairwise
from typing import Final

from fairlease_schemas.reasons import Evidence, Reason
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

Words = dict[str, str]

_STEPS: Final = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s"))


class Number(str):
    """A number in a sentence: `{n:GPU}` is `1 GPU` or `4 GPUs`, `{n:is|are}` the word that goes with it."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if "|" in spec:
            one, more = spec.split("|")
            return one if self == "1" else more
        return str(self) + (f" {spec}" if spec else "") + ("s" if spec and self != "1" else "")


def about(length_ms: int) -> str:
    """A length in its largest unit, and the next one where that is below ten: `1h5m`, `40m`, `2m10s`.

    Rounded up: what is told is when something will have happened at the latest.
    """
    for (unit_ms, unit), (step_ms, smaller) in pairwise(_STEPS):
        amount, rest = divmod(-(-length_ms // step_ms), unit_ms // step_ms)
        if amount >= 10:
            return f"{-(-length_ms // unit_ms)}{unit}"
        if amount > 0:
            return f"{amount}{unit}{rest}{smaller}" if rest else f"{amount}{unit}"
    return f"{max(0, -(-length_ms // SECOND_MS))}s"


def fields_of(sentence: str) -> frozenset[str]:
    """The fields that a sentence names."""
    return frozenset(part.partition("}")[0].partition(":")[0] for part in sentence.split("{")[1:])


def sentence_of(code: str, evidence: Evidence) -> Words:
    """The reason's sentence: two reasons are of two kinds, which their numbers tell apart."""
    if code == Reason.LANE_FULL and evidence.held_gpus + evidence.needed_gpus <= evidence.limit_gpus:
        return LANE_OF_PERSON
    if code == Reason.PROTECTED_WINDOWS and not evidence.needed_hosts:
        return WINDOW_ENDS_SOON
    if code == Reason.RESERVATION and not evidence.claim:
        return KEPT_FOR_LANE
    return REASONS[code]


JOINTS: Final[dict[str, tuple[str, str, str]]] = {"en": ("; ", ".", ", "), "zh": ("；", "。", "、")}
"""What stands between sentences, after the last, and between names."""

STATES: Final[dict[str, Words]] = {
    "waiting": {"en": "{job} waits in budget {budget}", "zh": "{job} 在预算 {budget} 中等待"},
    "backoff": {"en": "{job} waits after a failure before its next try", "zh": "{job} 失败后等待重试"},
    "dependent": {"en": "{job} does not compete yet", "zh": "{job} 尚未参与调度"},
    "held": {"en": "{job} is held by {holder} and does not compete", "zh": "{job} 已被 {holder} 挂起，不参与调度"},
    "granted": {"en": "{job} has its GPUs on {hosts} and is starting", "zh": "{job} 已获得 {hosts} 上的 GPU，正在启动"},
    "running": {"en": "{job} runs on {hosts}", "zh": "{job} 正在 {hosts} 上运行"},
    "stopping": {"en": "{job} is stopping on {hosts} ({ending})", "zh": "{job} 正在 {hosts} 上停止（{ending}）"},
    "succeeded": {"en": "{job} succeeded", "zh": "{job} 已成功"},
    "failed": {"en": "{job} failed ({cause})", "zh": "{job} 失败（{cause}）"},
    "cancelled": {"en": "{job} was cancelled", "zh": "{job} 已取消"},
    "timed-out": {"en": "{job} reached its time limit", "zh": "{job} 已超时"},
}

REASONS: Final[dict[str, Words]] = {
    Reason.BUDGET_CAP: {
        "en": "budget {level} may hold {limit_gpus:GPU} of pool {pool} while others wait, and with this job it would "
        "hold {held_gpus}",
        "zh": "其他预算等待时，预算 {level} 在 {pool} 池最多占用 {limit_gpus} 块 GPU，加上此任务将占 {held_gpus} 块",
    },
    Reason.WINDOW_OVERSHARE: {
        "en": "with its window budget {level} would stand at {standing_permille} of 1000, and {other} stands at "
        "{other_permille}: too high to ask its work to leave",
        "zh": "计入此窗口后预算 {level} 的已用份额为千分之 {standing_permille}，{other} 为千分之 {other_permille}："
        "份额过高，不能请其任务让出",
    },
    Reason.CAPACITY: {
        "en": "it needs {needed_gpus:GPU} in pool {pool}, and {free_gpus} {free_gpus:is|are} free",
        "zh": "需要 {pool} 池中的 {needed_gpus} 块 GPU，空闲 {free_gpus} 块",
    },
    Reason.FRAGMENTATION: {
        "en": "{free_gpus:GPU} {free_gpus:is|are} free in pool {pool}, enough for {needed_gpus}, but not in that "
        "shape: the largest hole is {largest_hole_gpus:GPU} on one host, and {whole_free_hosts:host} "
        "{whole_free_hosts:is|are} wholly free",
        "zh": "{pool} 池空闲 {free_gpus} 块 GPU，足够 {needed_gpus} 块，但形状不符："
        "单机最大空闲 {largest_hole_gpus} 块，完全空闲的主机 {whole_free_hosts} 台",
    },
    Reason.PROTECTED_WINDOWS: {
        "en": "it needs {needed_gpus:GPU} in pool {pool}, where {free_gpus} {free_gpus:is|are} free now; the work "
        "in its way is inside its windows, for {for_ms} at most",
        "zh": "需要 {pool} 池中的 {needed_gpus} 块 GPU，该池现有 {free_gpus} 块空闲；挡住它的任务仍在保护窗口内，"
        "最长 {for_ms}",
    },
    Reason.RESERVATION: {
        "en": "hosts of pool {pool} are kept for {claim}, for {for_ms} at most ({reserved_hosts} in all)",
        "zh": "{pool} 池的主机保留给 {claim}，最长 {for_ms}（共 {reserved_hosts} 台）",
    },
    Reason.HOST_MAINTENANCE: {
        "en": "hosts of pool {pool} with {held_gpus:GPU} take no new work",
        "zh": "{pool} 池中有 {held_gpus} 块 GPU 的主机不接受新任务",
    },
    Reason.HOST_FAULT: {
        "en": "hosts of pool {pool} with {held_gpus:GPU} are out with a fault",
        "zh": "{pool} 池中有 {held_gpus} 块 GPU 的主机因故障停用",
    },
    Reason.CONSTRAINT_CONFLICT: {
        "en": "pool {pool} has not {needed_hosts:host} of that shape any more",
        "zh": "{pool} 池已没有 {needed_hosts} 台符合形状的主机",
    },
    Reason.LANE_FULL: {
        "en": "it needs {needed_gpus:GPU} in the debug lane of pool {pool}, which holds {held_gpus} of its "
        "{limit_gpus:GPU}",
        "zh": "需要 {pool} 池调试通道中的 {needed_gpus} 块 GPU，该通道已用 {held_gpus}/{limit_gpus} 块 GPU",
    },
    Reason.PROTECTED_CAP: {
        "en": "budget {level} may protect {limit_gpus:GPU} of pool {pool}, and with this job it would protect "
        "{held_gpus}",
        "zh": "预算 {level} 在 {pool} 池最多保护 {limit_gpus} 块 GPU，加上此任务将为 {held_gpus} 块",
    },
    Reason.SAVING: {
        "en": "budget {level} saves for {claim}, which was submitted earlier and is too large for what comes free by "
        "itself",
        "zh": "预算 {level} 正为更早提交且较大的 {claim} 积攒资源",
    },
    Reason.RETRY_BACKOFF: {"en": "the next try comes in {for_ms}", "zh": "{for_ms} 后重试"},
    Reason.RESUME_REFUSED: {
        "en": "its checkpoint does not match the contract any more",
        "zh": "检查点与合约不再匹配",
    },
    Reason.THRASH_BRAKE: {
        "en": "it needs {needed_gpus:GPU} in pool {pool}, where {free_gpus} {free_gpus:is|are} free now; the work "
        "in its way was preempted too often and is exempt, for {for_ms} at most",
        "zh": "需要 {pool} 池中的 {needed_gpus} 块 GPU，该池现有 {free_gpus} 块空闲；挡住它的任务被抢占过多，暂时豁免，"
        "最长 {for_ms}",
    },
    Reason.AWAITING_CHECKPOINT: {
        "en": "in {for_ms} a checkpoint falls due in pool {pool} that makes the eviction for {needed_gpus:GPU} "
        "cheaper than now",
        "zh": "{for_ms} 后 {pool} 池有检查点到期，届时为 {needed_gpus} 块 GPU 抢占的损失更小",
    },
    Reason.DEPENDENCY: {"en": "it starts after {claim}", "zh": "在 {claim} 之后启动"},
    Reason.JOB_HELD: {"en": "it goes on once it is released", "zh": "释放后继续"},
    Reason.POLICY_CHANGE: {"en": "a change of policy is being carried out", "zh": "策略变更进行中"},
}
"""One sentence for each reason of the closed list."""

LANE_OF_PERSON: Final[Words] = {
    "en": "the debug lane of pool {pool} holds {held_gpus} of its {limit_gpus:GPU}, room enough for {needed_gpus}, but "
    "this person has as many jobs in the lane as one may",
    "zh": "{pool} 池的调试通道已用 {held_gpus}/{limit_gpus} 块 GPU，足够 {needed_gpus} 块，"
    "但该用户的调试任务数已达上限",
}
"""`lane-full` by the other of its two limits."""

KEPT_FOR_LANE: Final[Words] = {
    "en": "hosts of pool {pool} are kept empty for the debug lane, for gangs that lose a host and, where the policy "
    "says so, for large gangs ({reserved_hosts} are kept in all)",
    "zh": "{pool} 池有主机为调试通道、失去主机的任务以及（若策略允许）大型任务保持空闲（共保留 {reserved_hosts} 台）",
}
"""`reservation` for nobody by name."""

WINDOW_ENDS_SOON: Final[Words] = {
    "en": "in {for_ms} a window ends in pool {pool} that makes the eviction for {needed_gpus:GPU} cheaper than now",
    "zh": "{for_ms} 后 {pool} 池有保护窗口结束，届时为 {needed_gpus} 块 GPU 抢占的损失更小",
}
"""`protected-windows` of a claim that could evict now and loses less by waiting."""

TAILS: Final[dict[str, Words]] = {
    "cancelled_for": {
        "en": "{cause_job}, which it waited for, did not end well",
        "zh": "它等待的 {cause_job} 未能成功结束",
    },
    "barrier": {
        "en": "{ready} of {count:host} {ready:is|are} ready, and it waits for {late}{more}",
        "zh": "{count} 台主机中 {ready} 台就绪，正在等待 {late}{more}",
    },
    "more": {"en": " and {count} more", "zh": " 等另外 {count} 台"},
    "rank": {"en": "it is number {rank} in line", "zh": "排在第 {rank} 位"},
    "promise": {"en": "it is promised to start within {length}", "zh": "承诺在 {length} 内启动"},
    "leaving": {
        "en": "those on the hosts kept for it are told to leave and gone within {length}",
        "zh": "为其保留的主机上的任务已收到通知，将在 {length} 内离开",
    },
    "gpus_per_host": {
        "en": "with {now:GPU} per host instead of {asked}: {start}",
        "zh": "若每台改用 {now} 块 GPU（现为 {asked}）：{start}",
    },
    "hosts": {
        "en": "with {now:host} instead of {asked}: {start}",
        "zh": "若改用 {now} 台主机（现为 {asked}）：{start}",
    },
    "min_runtime_ms": {
        "en": "with a window of {now} instead of {asked}: {start}",
        "zh": "若窗口改为 {now}（现为 {asked}）：{start}",
    },
    "now": {"en": "now", "zh": "现在即可启动"},
    "within": {"en": "within {length}", "zh": "{length} 内启动"},
    "unknown": {"en": "no reason is on record yet: the next cycle gives one", "zh": "尚无原因记录：下一轮调度给出"},
    "exit-code": {"en": "exit code {code}", "zh": "退出码 {code}"},
}

PLANS: Final[dict[str, Words]] = {
    "now": {"en": "it would start now on {hosts}", "zh": "可立即在 {hosts} 上启动"},
    "after-evictions": {
        "en": "it would start within {length} on {hosts}, after {count:attempt} left that {count:loses|lose} "
        "{lost:GPU-minute}",
        "zh": "{count} 个任务让出（损失 {lost} GPU 分钟）后，{length} 内在 {hosts} 上启动",
    },
    "promised": {
        "en": "it would start within {length} on {hosts}, if nothing comes first",
        "zh": "若无更优先者，{length} 内在 {hosts} 上启动",
    },
    "later": {"en": "no start can be named yet", "zh": "尚不能给出启动时间"},
    "refused": {"en": "it would be refused", "zh": "将被拒绝"},
}
