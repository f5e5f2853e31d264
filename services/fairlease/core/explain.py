"""Why a job is where it is: reasons from the log, rank and distance, and the same in words.

Text is rendered from the answer itself and nothing else: every number and name in it stands in the
record. English and Chinese share one table of sentences.
"""

from typing import Final

import msgspec

from fairlease.core.job import Job, Phase
from fairlease.core.line import class_key
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.placement.place import needs_ms
from fairlease.core.view import as_of, order_of_waiting
from fairlease.core.world import OpenReason, World
from fairlease_schemas.explain import Counterfactual, Why, WhyReason, WhyText
from fairlease_schemas.ids import JobId
from fairlease_schemas.reasons import Reason
from fairlease_schemas.units import format_length

Words = dict[str, str]

STATES: Final[dict[str, Words]] = {
    "waiting": {"en": "{job} waits in budget {budget}", "zh": "{job} 在预算 {budget} 中等待"},
    "backoff": {"en": "{job} waits after a failure before its next try", "zh": "{job} 失败后等待重试"},
    "granted": {"en": "{job} has its GPUs on {hosts} and is starting", "zh": "{job} 已获得 {hosts} 上的 GPU,正在启动"},
    "running": {"en": "{job} runs on {hosts}", "zh": "{job} 正在 {hosts} 上运行"},
    "stopping": {"en": "{job} is stopping on {hosts} ({ending})", "zh": "{job} 正在 {hosts} 上停止({ending})"},
    "succeeded": {"en": "{job} succeeded", "zh": "{job} 已成功"},
    "failed": {"en": "{job} failed ({end}, exit code {exit_code})", "zh": "{job} 失败({end},退出码 {exit_code})"},
    "cancelled": {"en": "{job} was cancelled", "zh": "{job} 已取消"},
    "timed-out": {"en": "{job} reached its time limit", "zh": "{job} 已超时"},
}

REASONS: Final[dict[str, Words]] = {
    Reason.CAPACITY: {
        "en": "it needs {needed_gpus} GPUs in pool {pool}, and {free_gpus} are free",
        "zh": "需要 {pool} 池中的 {needed_gpus} 块 GPU,空闲 {free_gpus} 块",
    },
    Reason.FRAGMENTATION: {
        "en": "{free_gpus} GPUs are free in pool {pool}, enough for {needed_gpus}, but not in that shape: "
        "the largest hole is {largest_hole_gpus} GPUs on one host, and {whole_free_hosts} hosts are wholly free",
        "zh": "{pool} 池空闲 {free_gpus} 块 GPU,足够 {needed_gpus} 块,但形状不符:"
        "单机最大空闲 {largest_hole_gpus} 块,完全空闲的主机 {whole_free_hosts} 台",
    },
    Reason.RESERVATION: {
        "en": "{reserved_hosts} hosts of pool {pool} are kept for {claim}",
        "zh": "{pool} 池有 {reserved_hosts} 台主机保留给 {claim}",
    },
    Reason.HOST_MAINTENANCE: {
        "en": "hosts of pool {pool} with {held_gpus} GPUs take no new work",
        "zh": "{pool} 池中有 {held_gpus} 块 GPU 的主机不接受新任务",
    },
    Reason.CONSTRAINT_CONFLICT: {
        "en": "pool {pool} has no {needed_hosts} hosts of that shape any more",
        "zh": "{pool} 池已没有 {needed_hosts} 台符合形状的主机",
    },
    Reason.LANE_FULL: {
        "en": "the debug lane of pool {pool} is full with {held_gpus} GPUs, or this person has two jobs in it",
        "zh": "{pool} 池的调试通道已满({held_gpus} 块 GPU),或该用户已有两个调试任务",
    },
    Reason.RETRY_BACKOFF: {"en": "the next try comes {for_ms} after the failure", "zh": "失败 {for_ms} 后重试"},
}
"""Sentences of the reasons that this release writes; the house test compares them with the writers."""

TAILS: Final[dict[str, Words]] = {
    "rank": {"en": "it is number {rank} in line", "zh": "排在第 {rank} 位"},
    "fewer": {
        "en": "with {gpus} GPUs per host instead of {asked} it would fit now",
        "zh": "若每台只要 {gpus} 块 GPU(现为 {asked}),现在就能放下",
    },
    "fewer-hosts": {
        "en": "with {hosts} hosts instead of {asked} it would fit now",
        "zh": "若只要 {hosts} 台主机(现为 {asked}),现在就能放下",
    },
    "unknown": {"en": "no reason is on record yet: the next cycle gives one", "zh": "尚无原因记录:下一轮调度给出"},
}


def why(world: World, job: Job) -> Why:
    """The whole answer at the fold's position."""
    rank = _rank(world, job.id) if job.phase is Phase.WAITING else None
    reasons = tuple(_reason(found) for found in _open_reasons(world, job))
    counterfactuals = _counterfactuals(world, job)
    return Why(
        job=job.id,
        state=str(job.phase),
        as_of=as_of(world),
        rank=rank,
        start_by_ms=None,
        reasons=reasons,
        counterfactuals=counterfactuals,
        text=WhyText(
            en=_text(job, rank, reasons, counterfactuals, "en"), zh=_text(job, rank, reasons, counterfactuals, "zh")
        ),
    )


def _rank(world: World, job: JobId) -> int | None:
    return next((place for place, name in enumerate(order_of_waiting(world), 1) if name == job), None)


def _open_reasons(world: World, job: Job) -> list[OpenReason]:
    found = [world.reason("admission", job.id)]
    if job.phase is Phase.WAITING:
        found.append(world.reason("placement", class_key(job)))
    return [reason for reason in found if reason is not None]


def _reason(found: OpenReason) -> WhyReason:
    """A reason with the numbers that its sentence tells: those that make this reason and no other."""
    sentence = REASONS[found.code]["en"]
    evidence = {k: v for k, v in msgspec.structs.asdict(found.evidence).items() if "{" + k + "}" in sentence}
    until_ms = found.since_ms + found.evidence.for_ms if found.evidence.for_ms else None
    return WhyReason(
        code=str(found.code),
        since_ms=found.since_ms,
        until_ms=until_ms,
        evidence=evidence,
        positions=(found.began.position,),
    )


def _counterfactuals(world: World, job: Job) -> tuple[Counterfactual, ...]:
    """The largest smaller request per host that open room would take now, if there is one."""
    policy = world.policy
    if job.phase is not Phase.WAITING or policy is None:
        return ()
    needs = needs_ms(policy, job, world.log_time_ms)
    for pool in job.request.pools:
        room = Room(world, pool, world.log_time_ms)
        for gpus in range(job.request.gpus_per_host - 1, 0, -1):
            if room.find(Shape(job.request.hosts, gpus), job.id, needs) is not None:
                return (Counterfactual(change={"gpus_per_host": gpus}, start_by_ms=world.log_time_ms),)
        for hosts in range(job.request.hosts - 1, 0, -1):
            if room.find(Shape(hosts, job.request.gpus_per_host), job.id, needs) is not None:
                return (Counterfactual(change={"hosts": hosts}, start_by_ms=world.log_time_ms),)
    return ()


def _text(
    job: Job, rank: int | None, reasons: tuple[WhyReason, ...], counterfactuals: tuple[Counterfactual, ...], lang: str
) -> str:
    attempt = job.attempts[-1] if job.attempts else None
    names = {
        "job": job.id,
        "budget": job.budget,
        "hosts": ", ".join(attempt.hosts) if attempt else "",
        "ending": str(attempt.ending or "") if attempt else "",
        "end": str(job.end or ""),
        "exit_code": "-" if job.exit_code is None else str(job.exit_code),
    }
    sentences = [STATES[str(job.phase)][lang].format(**names)]
    for reason in reasons:
        numbers = {k: format_length(v) if k.endswith("_ms") else v for k, v in reason.evidence.items()}
        sentences.append(REASONS[reason.code][lang].format(**numbers))
    if job.phase is Phase.WAITING and not reasons:
        sentences.append(TAILS["unknown"][lang])
    if rank is not None:
        sentences.append(TAILS["rank"][lang].format(rank=rank))
    for counterfactual in counterfactuals:
        if "gpus_per_host" in counterfactual.change:
            asked, gpus = job.request.gpus_per_host, counterfactual.change["gpus_per_host"]
            sentences.append(TAILS["fewer"][lang].format(gpus=gpus, asked=asked))
        else:
            asked, hosts = job.request.hosts, counterfactual.change["hosts"]
            sentences.append(TAILS["fewer-hosts"][lang].format(hosts=hosts, asked=asked))
    joint, stop = ("; ", ".") if lang == "en" else (";", "。")
    return joint.join(sentences) + stop
