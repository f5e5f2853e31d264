"""Admission's edge: what a submission says, before anybody decides about it.

A contract is read here with pydantic, stored by digest, and boiled down to its scheduling fields;
the decision, the replay and the audit see only those. The body is on the bus before the record that
names it, so that an agent never looks for a body that does not exist.
"""

from collections.abc import Callable
from typing import Final

from fairlease.runtime import edge
from fairlease.runtime.bus import Message
from fairlease.runtime.contracts import Contracts
from fairlease.runtime.room import CLOSED_PERMILLE, OPEN_PERMILLE, Room
from fairlease.runtime.strict import strict_json
from fairlease_schemas import codec, contract
from fairlease_schemas.commands import SubmitJob
from fairlease_schemas.credential import kind_of
from fairlease_schemas.envelope import Answer, Misshapen, Submitted, Unreadable
from fairlease_schemas.ids import JobId, is_request_id, job_id
from fairlease_schemas.job import ADMISSION, Problem
from fairlease_schemas.subjects import Subjects

MAX_BODY_BYTES: Final = 60 * 1024
"""A canonical body that the store of contracts takes, headers and all; normal form C may triple what was sent."""


class Edge:
    """Reads what comes to admission; stores contract bodies.

    While the bus's disk has no room for new work, submissions are refused, but for those that are there already. The
    record says so, so that who decides it again needs no disk.
    """

    def __init__(self, subjects: Subjects, contracts: Contracts, room: Room, is_known: Callable[[JobId], bool]) -> None:
        self._subjects = subjects
        self._contracts = contracts
        self._room = room
        self._is_known = is_known

    def closed(self) -> str:
        """Why no new work is taken; empty when it is."""
        return self._room.told() if self._room.is_closed else ""

    async def read(self, message: Message) -> Answer:
        """The message as the record will name it. BusAway when a body could not be stored: it comes again."""
        said = edge.read_said(message)
        if isinstance(said, SubmitJob):
            said, body = read_submission(message, said)
            if isinstance(said, Submitted) and self._room.is_closed:
                said = self._refused(edge.sender(self._subjects, message), said)
            if isinstance(said, Submitted):
                await self._contracts.put(said.digest, body)
        return edge.answer_to(self._subjects, message, said)

    def _refused(self, account: str, said: Submitted) -> Submitted | Misshapen:
        """The submission as one that is refused for want of room, unless its job is there."""
        names = (said.request_id, f"{said.request_id}/0")
        if any(self._is_known(job_id(account, said.budget, name)) for name in names):
            return said
        limit = f"closed to new work from {CLOSED_PERMILLE // 10} % on, until it is below {OPEN_PERMILLE // 10} %"
        way_out = "submit the same again later; whoever keeps the cell makes room on the bus's disk"
        problem = Problem(field=ADMISSION, rule="L3", value=self._room.told(), limit=limit, way_out=way_out)
        return Misshapen(budget=said.budget, request_id=said.request_id, problems=(problem,))


def read_submission(message: Message, said: SubmitJob) -> tuple[Submitted | Misshapen | Unreadable, bytes]:
    """What a submission says, and the canonical body to store (empty when it is not a contract)."""
    raw = bytes(said.contract)
    try:
        data = strict_json(raw)
    except (ValueError, RecursionError) as error:
        return edge.unreadable(message.data, f"contract: {error}"), b""
    problems: tuple[Problem, ...] = ()
    if not is_request_id(said.request_id):
        way_out = "1-128 letters, digits and . _ : @ / + = -, beginning with a letter or digit"
        problems = (Problem(field="request_id", rule="1.14", limit=way_out, way_out="choose another request id"),)
    elif kind_of(said.request_id):
        told = f"this looks like {kind_of(said.request_id)}: choose another request id"
        problems = (Problem(field="request_id", rule="1.13", way_out=told),)
    if len(raw) > contract.MAX_CONTRACT_BYTES:
        limit = f"{contract.MAX_CONTRACT_BYTES} bytes"
        problems += (Problem(field="contract", rule="1.13", limit=limit, way_out="keep data out of the contract"),)
    parsed, wrong = contract.read_contract(data) if not problems else (None, ())
    if parsed is not None and parsed.spec.array is not None:
        problems = _array_problems(said.request_id)
    if parsed is None or problems:
        return Misshapen(budget=_budget(data), request_id=_printable(said.request_id), problems=problems + wrong), b""
    body = codec.canonical(contract.body(parsed))
    if len(body) > MAX_BODY_BYTES:
        limit = f"{MAX_BODY_BYTES} bytes in canonical form"
        too_large = Problem(field="contract", rule="1.13", limit=limit, way_out="keep data out of the contract")
        return Misshapen(budget=parsed.spec.budget, request_id=said.request_id, problems=(too_large,)), b""
    return (
        Submitted(
            budget=parsed.spec.budget,
            request_id=said.request_id,
            digest=codec.digest(contract.body(parsed)),
            request=contract.scheduling_fields(parsed),
        ),
        body,
    )


def _array_problems(request_id: str) -> tuple[Problem, ...]:
    """Jobs of an array are named by the request id, a slash and their index: that must be a request id too."""
    if len(request_id) <= contract.MAX_ARRAY_REQUEST_ID:
        return ()
    limit = f"{contract.MAX_ARRAY_REQUEST_ID} characters for an array"
    way_out = "choose a shorter request id"
    return (Problem(field="request_id", rule="1.11", value=f"{len(request_id)}", limit=limit, way_out=way_out),)


def _budget(data: object) -> str:
    """The budget that a misshapen contract names, as far as it can be told; else empty."""
    spec = data.get("spec") if isinstance(data, dict) else None
    budget = spec.get("budget") if isinstance(spec, dict) else None
    return _printable(budget) if isinstance(budget, str) else ""


def _printable(text: str) -> str:
    """The text as a record may hold it; nothing of one that looks like a secret."""
    if kind_of(text):
        return ""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in codec.nfc(text[:128]))
    return shown.encode("utf-8", "replace").decode()
