"""What accounts and permissions cost, and TLS: submissions to three cells in turn.

One has accounts, one a bus that is open, and one is as the first and sealed by TLS.

There are no hosts: a submission is answered, and nothing else happens.
"""

import json
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path

from figure import Figure, spread_ms
from live import contract
from nats.aio.subscription import Subscription

from fairlease.runtime import certificates, keys, supervisor
from fairlease.runtime.access import access
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.permissions import Identity
from fairlease.runtime.settings import Settings
from fairlease.runtime.supervisor import Supervisor, service_parts
from fairlease_schemas.subjects import Subjects, last_token

ACCOUNT = "local"
SUBJECTS = Subjects("lab")
_ANSWER_S = 30.0
_ORDERS = tuple(permutations(range(3)))
"""Whoever is asked after another finds the machine as that one left it: so each comes after each as often."""


class _Open(Supervisor):
    """A cell in which everybody may everything, as before there were accounts."""

    async def start(self) -> None:
        made, supervisor.access = supervisor.access, _keys_alone  # type: ignore[assignment]  # the bus asks for none
        try:
            await super().start()
        finally:
            supervisor.access = made


def _keys_alone(home: Path, subjects: Subjects, people: Iterable[Identity]) -> None:
    """Everybody has a key here too, so that both cells do the same but for what the bus does with it."""
    made = access(home, subjects, people)
    assert made.text


class _Desk:
    """One account's connection to one cell."""

    def __init__(self, client: Connection, heard: Subscription) -> None:
        self._client = client
        self._heard = heard

    @classmethod
    async def at(cls, cell: Supervisor) -> "_Desk":
        key = keys.make(cell.settings.state_dir, keys.client_name(ACCOUNT))
        client = await connect(cell.reach, "fairlease-load", key=key, exit_on_close=False)
        heard = await client.subscribe(SUBJECTS.answer(ACCOUNT, 0).rpartition(".")[0] + ".*")
        return cls(client, heard)

    async def answered_ns(self, verb: str, body: dict[str, object]) -> int:
        """From the sending of a command to its answer."""
        started_ns = time.perf_counter_ns()
        reply = await self._client.request(SUBJECTS.command(ACCOUNT, verb), json.dumps(body).encode(), timeout=5)
        seq = str(json.loads(reply.data)["seq"])
        while last_token((await self._heard.next_msg(timeout=_ANSWER_S)).subject) != seq:
            pass
        return time.perf_counter_ns() - started_ns

    async def close(self) -> None:
        await self._client.close()


async def secured(folder: Path, submissions: int) -> list[Figure]:
    """Medians of the submissions of all, taken in turn, and two ratios in permille: what each thing costs by itself."""
    async with AsyncExitStack() as stack:
        desks = []
        certificates.make(folder / "sealed")
        for kind, name in ((Supervisor, "secured"), (_Open, "open"), (Supervisor, "sealed")):
            settings = Settings(state_dir=folder / name)
            cell = kind(settings, service_parts(), is_sealed=name == "sealed")
            stack.push_async_callback(cell.stop)
            await cell.start()
            await cell.wait_ready()
            desks.append(await _Desk.at(cell))
            stack.push_async_callback(desks[-1].close)
            await desks[-1].answered_ns("change-budget", {"budget": "team-a", "weight": 1})
        took_ns: tuple[list[int], ...] = ([], [], [])
        for n in range(submissions):
            body: dict[str, object] = {"request_id": f"n-{n}", "contract": contract("team-a", ["true"])}
            for at in _ORDERS[n % len(_ORDERS)]:
                took_ns[at].append(await desks[at].answered_ns("submit-job", body))
        medians, worst = zip(*(spread_ms(found) for found in took_ns), strict=True)
    return [
        Figure("secured_to_open_permille", round(1_000 * medians[0] / medians[1]), "permille"),
        Figure("sealed_to_secured_permille", round(1_000 * medians[2] / medians[0]), "permille"),
        Figure("secured_submit_answered_ms", medians[0], "ms", {"p99": worst[0]}),
        Figure("open_submit_answered_ms", medians[1], "ms", {"p99": worst[1]}),
        Figure("sealed_submit_answered_ms", medians[2], "ms", {"p99": worst[2]}),
    ]
