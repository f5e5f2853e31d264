"""A submission becomes a job, or an array of them, or is refused (decisions.md 1).

An array is admitted whole in one record, because its request id is answered once: that bounds its size.
Each of its jobs is a job of its own, named by the request id, a slash and its index.
"""

import msgspec

from fairlease.core.contract_rules import check, effective_request
from fairlease.core.dependency import Fate, fate_of, problems_of
from fairlease.core.job import Job, replace
from fairlease.core.stage import Stage
from fairlease_schemas.envelope import Answer, Submitted
from fairlease_schemas.ids import AccountId, job_id
from fairlease_schemas.job import JobAdmitted, JobRefused, Problem
from fairlease_schemas.reasons import Evidence, Reason

MAX_ARRAY = 200
MAX_ARRAY_BYTES = 160 * 1024
_REASON_BYTES = 200
"""What the reason of one waiting job may take in a record."""


def submit(stage: Stage, answer: Answer, said: Submitted) -> None:
    """Admit what was submitted, refuse it with every problem, or see that it is there already (1.14)."""
    known = _known(stage, answer.who, said)
    if known is not None:
        if known.digest != said.digest:
            _refuse(stage, answer, said, (_another_body(said, known),))
        return
    stage.causes.add(stage.world.policy_address)
    request = effective_request(stage.world, stage.policy, said.request)
    problems, advice = check(stage.world, stage.policy, answer.who, said.budget, request, stage.now_ms)
    problems += tuple(problems_of(request.after, stage.named))
    first = JobAdmitted(
        job=job_id(answer.who, said.budget, said.request_id),
        account=answer.who,
        budget=said.budget,
        request_id=said.request_id,
        digest=said.digest,
        request=request,
        advice=advice,
    )
    problems += _array_problems(first)
    if problems:
        _refuse(stage, answer, said, problems)
        return
    if request.array is None:
        _admit(stage, first, is_free=True)
        return
    free = request.array.parallel or request.array.count
    for index in range(request.array.count):
        name = f"{said.request_id}/{index}"
        one = replace(
            first,
            job=job_id(answer.who, said.budget, name),
            request_id=name,
            request=replace(request, array=replace(request.array, index=index)),
            advice=advice if index == 0 else (),
        )
        _admit(stage, one, is_free=index < free)


def _admit(stage: Stage, event: JobAdmitted, *, is_free: bool) -> None:
    """The job, waiting for others first where it must; without a free place, for the first of its array."""
    fate, cause = fate_of(event.request.after, stage.named)
    if fate is Fate.MET and is_free:
        stage.admit(event)
        return
    if not cause:
        cause = job_id(event.account, event.budget, event.request_id.rpartition("/")[0] + "/0")
    stage.admit(replace(event, is_blocked=True))
    stage.begin_reason(event.job, Reason.DEPENDENCY, Evidence(claim=cause))


def _known(stage: Stage, account: AccountId, said: Submitted) -> Job | None:
    """The job that has this request id already: alone, as the first of an array, or one of the array to be."""
    whole = stage.job(job_id(account, said.budget, said.request_id))
    if whole is not None:
        return whole
    count = said.request.array.count if said.request.array is not None else 1
    for index in range(min(count, MAX_ARRAY)):
        one = stage.job(job_id(account, said.budget, f"{said.request_id}/{index}"))
        if one is not None and (said.request.array is not None or one.request.array is not None):
            return one
    return None


def _another_body(said: Submitted, known: Job) -> Problem:
    return Problem(
        field="request_id",
        rule="1.14",
        value=f"body {said.digest[:12]}",
        limit=f"body {known.digest[:12]}, as first submitted",
        way_out="use a new request id, or submit the first body again",
    )


def _array_problems(event: JobAdmitted) -> tuple[Problem, ...]:
    """Whether an array's jobs fit one record."""
    array = event.request.array
    if array is None:
        return ()
    each = len(msgspec.json.encode(event)) + _REASON_BYTES
    if array.count <= MAX_ARRAY and array.count * each <= MAX_ARRAY_BYTES:
        return ()
    return (
        Problem(
            field="spec.array.count",
            rule="1.11",
            value=str(array.count),
            limit=str(min(MAX_ARRAY, MAX_ARRAY_BYTES // each)),
            way_out="write several arrays, or ask for less in each job",
        ),
    )


def _refuse(stage: Stage, answer: Answer, said: Submitted, problems: tuple[Problem, ...]) -> None:
    name = job_id(answer.who, said.budget, said.request_id)
    stage.events.append(JobRefused(job=name, account=answer.who, seq=answer.seq, problems=problems))
