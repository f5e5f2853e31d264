"""Why a job is where it is: reasons from the log, rank, promise, counterfactuals, and the same in words.

Text is rendered from the answer itself and nothing else: every number and name in it stands in the
record. What would change the answer is found by asking the steps' own functions about a changed request.
"""

import msgspec

from fairlease.core.job import Attempt, Job, Phase, replace, told_of
from fairlease.core.line import class_key
from fairlease.core.outlook import LATER, NOW, Outlook, Outlooks
from fairlease.core.policy_rules import window_bound
from fairlease.core.state import OpenReason
from fairlease.core.view import as_of, left_by_ms, order_of_waiting
from fairlease.core.words import (
    JOINTS,
    PLANS,
    STATES,
    TAILS,
    Number,
    Words,
    about,
    fields_of,
    sentence_of,
)
from fairlease.core.world import World
from fairlease_schemas.explain import Counterfactual, PlannedEviction, PlanView, Why, WhyReason, WhyText
from fairlease_schemas.ids import JobId
from fairlease_schemas.job import Advice, Problem
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence
from fairlease_schemas.units import MINUTE_MS, format_length

LANGUAGES = ("en", "zh")
MAX_COUNTERFACTUALS = 3


def why(world: World, job: Job) -> Why:
    """The whole answer at the fold's position."""
    place = _place(world, job.id) if job.phase is Phase.WAITING else None
    rank = place[0] if place is not None else None
    found = _open_reasons(world, job)
    reasons = tuple(map(_reason, found))
    sentences = [sentence_of(str(reason.code), reason.evidence) for reason in found]
    promise = world.promises.get(job.id)
    start_by_ms = promise.start_ms if promise is not None else left_by_ms(world, job)
    counterfactuals = _counterfactuals(world, job)
    en, zh = (
        _text(world, job, rank, start_by_ms, list(zip(reasons, sentences, strict=True)), counterfactuals, lang)
        for lang in LANGUAGES
    )
    return Why(
        job=job.id,
        state=str(job.phase),
        as_of=as_of(world),
        rank=rank,
        start_by_ms=start_by_ms,
        reasons=reasons,
        counterfactuals=counterfactuals,
        text=WhyText(en=en, zh=zh),
        held_by=job.held_by,
        held_for=job.held_for,
        cancelled_for=job.cancelled_for,
        ahead_gpus=place[1] if place is not None else None,
    )


def plan(world: World, job: Job, problems: tuple[Problem, ...], advice: tuple[Advice, ...]) -> PlanView:
    """What would happen to this job if it were submitted and tried now; `problems` are why it would be refused."""
    policy = world.policy
    outlook = Outlooks(world, policy).best(job) if policy is not None and not problems else None
    when = "refused" if problems else (outlook.when if outlook is not None else LATER)
    en, zh = (_plan_text(world, outlook, when, lang) for lang in LANGUAGES)
    return PlanView(
        when=when,
        pool=outlook.pool if outlook else "",
        start_by_ms=outlook.start_by_ms if outlook else None,
        hosts=outlook.hosts if outlook else (),
        evictions=tuple(
            PlannedEviction(attempt=v.attempt, budget=v.leaf, lost_gpu_ms=v.lost_gpu_ms)
            for v in (outlook.victims if outlook else ())
        ),
        lost_gpu_ms=outlook.lost_gpu_ms if outlook else 0,
        code=str(outlook.code) if outlook and outlook.code else "",
        evidence=told(str(outlook.code), outlook.evidence) if outlook and outlook.code else {},
        problems=problems,
        advice=advice,
        text=WhyText(en=en, zh=zh),
        as_of=as_of(world),
    )


def told(code: str, evidence: Evidence) -> dict[str, int | str]:
    """The fields of the evidence that the reason's sentence tells: those that make this reason and no other."""
    fields = fields_of(sentence_of(code, evidence)["en"])
    return {k: v for k, v in msgspec.structs.asdict(evidence).items() if k in fields}


def _place(world: World, job: JobId) -> tuple[int, int] | None:
    """The job's rank among all that wait, from 1, and how many GPUs those before it ask for: its distance (9.2)."""
    ahead_gpus = 0
    for rank, name in enumerate(order_of_waiting(world), 1):
        if name == job:
            return rank, ahead_gpus
        ahead_gpus += world.jobs[name].gpus
    return None


def _open_reasons(world: World, job: Job) -> list[OpenReason]:
    """The job's own, and its class's: what its eviction waits for, else why it is not placed."""
    found = [world.reason("admission", job.id)]
    if job.phase is Phase.WAITING:
        key = class_key(job)
        # What an eviction waits for says more than that hosts are meant for it.
        found.append(world.reason("preemption", key) or world.reason("placement", key))
    return [reason for reason in found if reason is not None]


def _reason(found: OpenReason) -> WhyReason:
    return WhyReason(
        code=str(found.code),
        since_ms=found.since_ms,
        until_ms=found.since_ms + found.evidence.for_ms if found.evidence.for_ms else None,
        evidence=told(found.code, found.evidence),
        positions=(found.began.position,),
    )


def _counterfactuals(world: World, job: Job) -> tuple[Counterfactual, ...]:
    """Smaller requests that would start sooner, one of each kind: GPUs per host, hosts, window.

    Of each kind the largest that starts at the soonest; only those that beat the present outlook.
    """
    policy = world.policy
    if job.phase is not Phase.WAITING or policy is None:
        return ()
    outlooks = Outlooks(world, policy)
    present_ms = _start_ms(world, job, outlooks.best(job))
    found = []
    for field, values in _smaller(policy, job):
        best: tuple[int, int] | None = None
        for value in values:
            changed = replace(job, request=replace(job.request, **{field: value}))
            if not _has_fit_window(policy, changed):
                continue
            outlook = outlooks.best(changed)
            start_ms = outlook.start_by_ms if outlook is not None else None
            if outlook is None or start_ms is None or (present_ms is not None and start_ms >= present_ms):
                continue
            if best is None or start_ms < best[0]:
                best = (start_ms, value)
            if outlook.when == NOW:
                break
        if best is not None:
            found.append(Counterfactual(change={field: best[1]}, start_by_ms=best[0]))
    return tuple(found[:MAX_COUNTERFACTUALS])


def _smaller(policy: Policy, job: Job) -> list[tuple[str, list[int]]]:
    """What to try, the largest first; windows are halved down to the shortest that the policy allows."""
    request = job.request
    gpus = list(range(request.gpus_per_host - 1, 0, -1)) if request.hosts == 1 else []
    hosts = [h for h in (request.hosts // 2, request.hosts // 4, 1) if 0 < h < request.hosts]
    bound = window_bound(policy, job.gpus)
    windows = []
    window_ms = request.min_runtime_ms // 2
    while request.is_resumable and not request.lane and job.rest_ms is None and window_ms >= bound.shortest_ms:
        windows.append(window_ms - window_ms % MINUTE_MS)
        window_ms //= 2
    return [("gpus_per_host", gpus), ("hosts", list(dict.fromkeys(hosts))), ("min_runtime_ms", windows)]


def _has_fit_window(policy: Policy, job: Job) -> bool:
    """Whether a gang of that size may ask for its window (1.4): what would be refused is no way to start sooner."""
    request = job.request
    if job.is_idle_work or request.lane or not request.is_resumable:
        return True
    bound = window_bound(policy, job.gpus)
    return bound.shortest_ms <= request.min_runtime_ms <= bound.longest_ms


def _start_ms(world: World, job: Job, outlook: Outlook | None) -> int | None:
    """When the job will have started as things are: by its outlook, or by its promise where that is sooner."""
    promise = world.promises.get(job.id)
    starts_ms = [
        outlook.start_by_ms if outlook is not None else None,
        promise.start_ms if promise is not None else None,
    ]
    return min((start_ms for start_ms in starts_ms if start_ms is not None), default=None)


def _text(  # noqa: PLR0917 - a sentence of everything the answer holds
    world: World,
    job: Job,
    rank: int | None,
    start_by_ms: int | None,
    reasons: list[tuple[WhyReason, Words]],
    counterfactuals: tuple[Counterfactual, ...],
    lang: str,
) -> str:
    now_ms = world.log_time_ms
    sentences = [STATES[str(job.phase)][lang].format(**_names(job, lang))]
    if job.phase is Phase.GRANTED and job.live is not None and job.live.not_ready:
        sentences.append(_barrier(job.live, lang))
    if job.cancelled_for:
        sentences.append(TAILS["cancelled_for"][lang].format(cause_job=job.cancelled_for))
    sentences += [words[lang].format(**_written(_left(reason, now_ms))) for reason, words in reasons]
    if job.phase is Phase.WAITING and not reasons:
        sentences.append(TAILS["unknown"][lang])
    if start_by_ms is not None:
        tail = TAILS["promise" if job.id in world.promises else "leaving"]
        sentences.append(tail[lang].format(length=about(start_by_ms - now_ms)))
    if rank is not None:
        sentences.append(TAILS["rank"][lang].format(rank=rank))
    for counterfactual in counterfactuals:
        ((field, value),) = counterfactual.change.items()
        length_ms = counterfactual.start_by_ms - now_ms
        start = TAILS["within"][lang].format(length=about(length_ms)) if length_ms > 0 else TAILS["now"][lang]
        asked = getattr(job.request, field)
        shown = [format_length(v) if field.endswith("_ms") else Number(v) for v in (value, asked)]
        sentences.append(TAILS[field][lang].format(now=shown[0], asked=shown[1], start=start))
    return _joined(sentences, lang)


def _barrier(attempt: Attempt, lang: str) -> str:
    """How many hosts of a gang are ready, and which it waits for; of many the first in rank order (1.15)."""
    named, others = told_of(attempt.not_ready)
    more = TAILS["more"][lang].format(count=others) if others else ""
    count = Number(len(attempt.parts))
    return TAILS["barrier"][lang].format(
        ready=Number(len(attempt.ready)), count=count, late=_listed(named, lang), more=more
    )


def _cause(job: Job, lang: str) -> str:
    """How a job failed: its exit code, else the kind of end and what the agent said about it."""
    if job.exit_code is not None:
        return TAILS["exit-code"][lang].format(code=job.exit_code)
    last = job.attempts[-1] if job.attempts else None
    detail = (last.detail or next((part.detail for part in last.gone if part.detail), "")) if last else ""
    refused = next((part.mismatches for part in last.gone if part.mismatches), ()) if last else ()
    if refused:
        detail = ", ".join(f"{m.field} is {m.found} in the checkpoint, and {m.wanted} here" for m in refused)
    return ": ".join(word for word in (str(job.end or ""), detail) if word)


def _names(job: Job, lang: str) -> dict[str, str]:
    attempt = job.attempts[-1] if job.attempts else None
    return {
        "job": job.id,
        "budget": job.budget,
        "hosts": _listed(attempt.hosts if attempt else (), lang),
        "holder": f"{job.held_by} ({job.held_for})" if job.held_for else job.held_by,
        "ending": str(attempt.ending or "") if attempt else "",
        "end": str(job.end or ""),
        "cause": _cause(job, lang),
    }


def _listed(names: tuple[str, ...], lang: str) -> str:
    return JOINTS[lang][2].join(names)


def _left(reason: WhyReason, now_ms: int) -> dict[str, int | str]:
    """The evidence with what is left of its length by now."""
    if reason.until_ms is None:
        return reason.evidence
    return reason.evidence | {"for_ms": max(0, reason.until_ms - now_ms)}


def _written(evidence: dict[str, int | str]) -> dict[str, str]:
    """Evidence as it is written in a sentence: lengths with their units, numbers with what they count."""
    return {k: about(int(v)) if k.endswith("_ms") else Number(v) for k, v in evidence.items()}


def _plan_text(world: World, outlook: Outlook | None, when: str, lang: str) -> str:
    start_ms = outlook.start_by_ms if outlook is not None else None
    names = {
        "hosts": _listed(outlook.hosts if outlook else (), lang),
        "length": about((start_ms or world.log_time_ms) - world.log_time_ms),
        "count": Number(len(outlook.victims) if outlook else 0),
        "lost": Number(outlook.lost_gpu_ms // MINUTE_MS if outlook else 0),
    }
    sentences = [PLANS[when][lang].format(**names)]
    if outlook is not None and outlook.code is not None:
        words = sentence_of(str(outlook.code), outlook.evidence)
        sentences.append(words[lang].format(**_written(told(str(outlook.code), outlook.evidence))))
    return _joined(sentences, lang)


def _joined(sentences: list[str], lang: str) -> str:
    joint, stop, _ = JOINTS[lang]
    return joint.join(sentences) + stop
