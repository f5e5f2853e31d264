"""Questions to the explainer, answered from its own fold: reply is one view, or a `Trouble`.

Every question is a small struct; unknown fields are refused, so that a typo is told. A job that
does not exist and one that was refused look the same: neither is in the log's world. `at` asks about
the world right behind an earlier position of the log.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from fairlease.core import explain, planning, view
from fairlease.core.world import World
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import Reply, Trouble
from fairlease_schemas.job import Request

Handler = Callable[[bytes], Awaitable[bytes]]
WorldAt = Callable[[int], Awaitable[World]]
MAX_ROWS: Final = 100_000
MOST_NAMED: Final = 32
"""Pools, GPU models, labels or jobs to wait for in one request: no contract may name more of any."""
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every question may say: `at` is a position of the log, 0 for now."""

    at: int = 0


class AskQueue(Asked, frozen=True, kw_only=True):
    """At most `limit` rows, of one account or budget when named; `start` adds when each will have started."""

    limit: int = 200
    account: str = ""
    budget: str = ""
    start: bool = False


class AskRank(Asked, frozen=True, kw_only=True):
    """At most `limit` rows."""

    limit: int = 200


class AskJob(Asked, frozen=True, kw_only=True):
    """About one job."""

    job: str


class AskPlan(Asked, frozen=True, kw_only=True):
    """What would happen to this request of that account, charged to that budget."""

    account: str
    budget: str
    request: Request


def handlers(now: Callable[[], World], past: WorldAt) -> dict[str, Handler]:
    """Question to handler; `now` gives the fold as it is when the question is answered, `past` an earlier one."""

    def queue(world: World, asked: AskQueue) -> Reply:
        return view.queue(world, _rows(asked.limit), asked.account, asked.budget, with_start=asked.start)

    def rank(world: World, asked: AskRank) -> Reply:
        return view.rank_view(world, _rows(asked.limit))

    def job(world: World, asked: AskJob) -> Reply:
        found = world.jobs.get(asked.job)
        return view.job_view(world, found) if found is not None else _unknown(asked)

    def why(world: World, asked: AskJob) -> Reply:
        found = world.jobs.get(asked.job)
        return explain.why(world, found) if found is not None else _unknown(asked)

    def plan(world: World, asked: AskPlan) -> Reply:
        too_many = _named_too_often(asked.request)
        if too_many:
            text = f"request.{too_many}: more than {MOST_NAMED}, which no contract may name: leave some out"
            return Trouble(code="bad-question", text=text)
        return planning.plan(world, asked.account, asked.budget, asked.request)

    answers: dict[str, tuple[type[Asked], Callable[[World, Any], Reply]]] = {
        "queue": (AskQueue, queue),
        "rank": (AskRank, rank),
        "job": (AskJob, job),
        "why": (AskJob, why),
        "plan": (AskPlan, plan),
        "shares": (Asked, lambda world, _asked: view.shares(world)),
        "hosts": (Asked, lambda world, _asked: view.hosts_view(world)),
        "policy": (Asked, lambda world, _asked: view.policy_view(world)),
        "proposals": (Asked, lambda world, _asked: view.proposals_view(world)),
    }
    return {question: _answering(kind, answer, now, past) for question, (kind, answer) in answers.items()}


def _named_too_often(request: Request) -> str:
    """The list of a request that is longer than any contract's, for each is compared with every host; else empty."""
    lists = {"pools": request.pools, "after": request.after}
    if request.constraints is not None:
        lists |= {"constraints.gpu_models": request.constraints.gpu_models}
        lists |= {"constraints.labels": tuple(request.constraints.labels)}
    return next((name for name, named in lists.items() if len(named) > MOST_NAMED), "")


def _rows(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))


def _unknown(asked: AskJob) -> Trouble:
    text = f"no job {asked.job[:60]!r} in this cell: see `fairlease queue`; a refused job leaves nothing behind"
    return Trouble(code="unknown-job", text=text)


def _answering(
    kind: type[Asked], answer: Callable[[World, Any], Reply], now: Callable[[], World], past: WorldAt
) -> Handler:
    """Bytes in, bytes out; what cannot be read is told, and raises nothing."""

    async def handle(data: bytes) -> bytes:
        try:
            asked = understood(data or b"{}", kind)
        except Unreadable as error:
            return _ENCODER.encode(Trouble(code="bad-question", text=str(error)[:300]))
        tail = now().position
        if not 0 <= asked.at <= tail:
            text = f"at {asked.at}: the log ends at {tail}; ask about a position from 1 to {tail}"
            return _ENCODER.encode(Trouble(code="bad-question", text=text))
        world = await past(asked.at) if asked.at else now()
        return _ENCODER.encode(answer(world, asked))

    return handle
