"""Questions to the explainer, answered from its own fold: reply is one view, or a `Trouble`.

Every question is a small struct; unknown fields are refused, so that a typo is told. A job that
does not exist and one that was refused look the same: neither is in the log's world.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from fairlease.core import explain, view
from fairlease.core.world import World
from fairlease_schemas.explain import Reply, Trouble

Handler = Callable[[bytes], Awaitable[bytes]]
MAX_ROWS: Final = 100_000
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class AskQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most `limit` rows, of one account or budget when named."""

    limit: int = 200
    account: str = ""
    budget: str = ""


class AskJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """About one job."""

    job: str


class AskNothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No words needed."""


Q = TypeVar("Q", AskQueue, AskJob, AskNothing)


def handlers(world: Callable[[], World]) -> dict[str, Handler]:
    """Question to handler; `world` gives the fold as it is when the question is answered."""

    def queue(asked: AskQueue) -> Reply:
        return view.queue(world(), max(0, min(asked.limit, MAX_ROWS)), asked.account, asked.budget)

    def job(asked: AskJob) -> Reply:
        found = world().jobs.get(asked.job)
        return view.job_view(world(), found) if found is not None else _unknown(asked)

    def why(asked: AskJob) -> Reply:
        found = world().jobs.get(asked.job)
        return explain.why(world(), found) if found is not None else _unknown(asked)

    def shares(_asked: AskNothing) -> Reply:
        return view.shares(world())

    def hosts(_asked: AskNothing) -> Reply:
        return view.hosts_view(world())

    def policy(_asked: AskNothing) -> Reply:
        return view.policy_view(world())

    return {
        "queue": _answering(AskQueue, queue),
        "job": _answering(AskJob, job),
        "why": _answering(AskJob, why),
        "shares": _answering(AskNothing, shares),
        "hosts": _answering(AskNothing, hosts),
        "policy": _answering(AskNothing, policy),
    }


def _unknown(asked: AskJob) -> Trouble:
    text = f"no job {asked.job[:60]!r} in this cell: see `fairlease queue`; a refused job leaves nothing behind"
    return Trouble(code="unknown-job", text=text)


def _answering(kind: type[Q], answer: Callable[[Q], Reply]) -> Handler:
    """Bytes in, bytes out; what cannot be read is told, and raises nothing."""
    decoder = msgspec.json.Decoder(kind)

    async def handle(data: bytes) -> bytes:
        try:
            asked = decoder.decode(data or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _ENCODER.encode(Trouble(code="bad-question", text=str(error)[:300]))
        return _ENCODER.encode(answer(asked))

    return handle
