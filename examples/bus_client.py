"""A cell's client over the bus, with nats-py and nothing of Fairlease: what a pipeline or a bot needs, and no more.

It publishes `fl.<cell>.cmd.<account>.>`, hears `fl.<cell>.answer.<account>.*` and `fl.<cell>.feed.>`, and asks
`fl.<cell>.ask.explainer.*`: a client's rights, by the account's key. Commands go as CloudEvents in binary mode. A plain
subscription may miss what was said while the connection was away, so whoever waits here also asks now and then.
"""

import asyncio
import json
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

ANSWER_S = 10.0
CONNECT_S = 15.0
TRIES = 6
AWAY = 69
LATER = 75


class Away(Exception):
    """The cell cannot be reached, or does not answer; `code` is what a program should leave with."""

    def __init__(self, text: str, code: int = AWAY) -> None:
        super().__init__(text)
        self.code = code


class CellClient:
    """One account's view of a cell; `open` it first."""

    def __init__(self, url: str, cell: str, account: str, creds: str = "", authority: str = "") -> None:
        self.url, self.cell, self.account, self.creds, self.authority = url, cell, account, creds, authority
        self._client = Client()
        self._said = ""
        self._asking = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._early: dict[int, dict[str, Any]] = {}

    @classmethod
    def of_environment(cls) -> "CellClient":
        """By FAIRLEASE_URL, FAIRLEASE_CELL (`lab`), FAIRLEASE_ACCOUNT (`local`), FAIRLEASE_CREDS, its key's file.

        For `tls://` also by FAIRLEASE_CA, the file of the authority by which the bus is known (the system's).
        """
        env = os.environ
        return cls(
            env.get("FAIRLEASE_URL", "nats://127.0.0.1:4222"),
            env.get("FAIRLEASE_CELL", "lab"),
            env.get("FAIRLEASE_ACCOUNT", "local"),
            env.get("FAIRLEASE_CREDS", ""),
            env.get("FAIRLEASE_CA", ""),
        )

    async def open(self) -> None:
        """Connect, and hear answers from now on; Away when nobody is there, or the key is none that the bus knows."""
        try:
            servers = [server.strip() for server in self.url.split(",")]
            options = {"max_reconnect_attempts": -1, "error_cb": self._complained}
            options |= {**_seal(servers, self.authority), **_proof(self.creds)}
            self._client = await asyncio.wait_for(nats.connect(servers, **options), CONNECT_S)
            await self._client.subscribe(f"fl.{self.cell}.answer.{self.account}.*", cb=self._heard)
            await self._settle()
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise Away(f"no bus at {self.url.rpartition('@')[2]}: {self._said or type(error).__name__}") from error

    async def close(self) -> None:
        """End the connection, if there ever was one."""
        if self._client.is_connected:
            await self._client.close()

    async def follow(self, subject: str) -> Subscription:
        """The feed below `fl.<cell>.feed.`, from now on."""
        heard = await self._client.subscribe(f"fl.{self.cell}.feed.{subject}")
        await self._settle()
        return heard

    async def _settle(self) -> None:
        """The bus has our subscriptions when this returns: nats-py sends a ping ahead of what it has yet to write."""
        for _ in range(2):
            await self._client.flush(10)

    async def command(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a command and return its answer; sends it again until there is one, which changes nothing twice.

        The subject of a command about a host ends in it, so that the bus can let a bot look after its own hosts alone.

        Away 69 when the bus does not take it, 75 when it took it and nobody answers.
        """
        self._asking += 1
        try:
            return await self._command(verb, body)
        finally:
            self._asking -= 1
            if not self._asking:
                self._early.clear()  # answers to others of the account

    async def _command(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {
            "ce-specversion": "1.0",
            "ce-id": str(body.get("request_id") or uuid.uuid4()),
            "ce-source": f"/client/{self.account}",
            "ce-type": f"dev.fairlease.{verb}",
            "content-type": "application/json",
        }
        why = Away("the bus did not take the command")
        for _ in range(TRIES):
            heed_end()
            try:
                subject = f"fl.{self.cell}.cmd.{self.account}.{verb}" + (f".{body['host']}" if "host" in body else "")
                reply = await self._client.request(subject, json.dumps(body).encode(), timeout=5, headers=headers)
                place = json.loads(reply.data)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                if "permissions violation" in self._said.lower():
                    raise Away(f"the bus refuses the command: {self._said}") from error
                why = Away(f"the bus did not take the command: {self._said or type(error).__name__}")
                await asyncio.sleep(1)
                continue
            if "error" in place:
                raise Away(f"the bus refuses the command: {place['error'].get('description')}", LATER)
            try:
                return await asyncio.wait_for(self._answer(int(place["seq"])), ANSWER_S)
            except TimeoutError:
                why = Away(f"no answer to {verb} within {ANSWER_S:.0f} s", LATER)
        raise why

    async def ask(self, question: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The explainer's answer; None while nobody answers."""
        try:
            subject = f"fl.{self.cell}.ask.explainer.{question}"
            reply = await self._client.request(subject, json.dumps(body).encode(), timeout=5)
        except (OSError, nats.errors.Error, TimeoutError):
            return None
        found: dict[str, Any] = json.loads(reply.data)
        return found

    async def _complained(self, error: Exception) -> None:
        """What the bus, or the way to it, says of itself; the library would print a traceback of each."""
        self._said = str(error) or type(error).__name__

    async def _heard(self, message: Any) -> None:  # noqa: ANN401 - nats-py's own message
        seq = int(message.subject.rpartition(".")[2])
        answer = json.loads(message.data)
        waiting = self._answers.pop(seq, None)
        if waiting is None:
            if not self._asking:
                return
            self._early[seq] = answer  # it may come before the bus said which place the command has
        elif not waiting.done():
            waiting.set_result(answer)

    async def _answer(self, seq: int) -> dict[str, Any]:
        if seq in self._early:
            return self._early.pop(seq)
        self._answers[seq] = asyncio.get_running_loop().create_future()
        return await self._answers[seq]


def _seal(servers: list[str], authority: str) -> dict[str, Any]:
    """TLS before the bus says a word, where an address is `tls://`: whoever is in between could write its greeting."""
    sealed = [server for server in servers if server.startswith("tls://")]
    if not sealed:
        return {}
    if sealed != servers:
        raise Away("FAIRLEASE_URL: some servers are tls:// and others are not")
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except OSError as error:
        raise Away(f"no authority in {authority} (FAIRLEASE_CA): {type(error).__name__}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return {"tls": context, "tls_handshake_first": True}


def _proof(creds: str) -> dict[str, Any]:
    """What a connection proves itself by: the file holds an identity, whose inboxes alone it may hear, and a seed."""
    if not creds:
        return {}
    try:
        key = json.loads(Path(creds).read_text(encoding="utf-8"))
        return {"nkeys_seed_str": key["seed"], "inbox_prefix": f"_INBOX.{key['identity']}".encode()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Away(f"no key in {creds} (FAIRLEASE_CREDS): {type(error).__name__}") from None


async def messages(heard: Subscription, every_s: float) -> AsyncIterator[dict[str, Any] | None]:
    """Every message of the subscription, and None every `every_s`, which is the time to ask.

    Also between messages that come without end: the one that was waited for may have been lost.
    """
    now = asyncio.get_running_loop().time
    ask_at = now() + every_s
    while True:
        heed_end()
        try:
            message = await heard.next_msg(timeout=max(ask_at - now(), 0.001))
        except TimeoutError:
            message = None
        except nats.errors.Error as error:
            raise Away(f"the bus is gone for good: {type(error).__name__}") from error
        if message is not None:
            yield json.loads(message.data)
        if now() >= ask_at:
            ask_at = now() + every_s
            yield None


def heed_end() -> None:
    """Ends what was asked to end, although that got lost.

    `asyncio.wait_for` of Python 3.11, by which nats-py waits, drops a cancellation that comes in the same turn of the
    loop as what it waits for.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
