"""The wire between one command and its cell: questions, commands and their answers.

A question is a core request to the explainer. A command is stored in the account's inbox, and its
answer is what the explainer publishes for that place in the inbox. The surprising choice: the answer
is heard on a plain subscription, and also read from the feed's store once a second, because a plain
subscription may miss it while the client reconnects. Nothing here decides how an answer is shown.
"""

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.subscription import Subscription

from fairlease.cli.exits import AWAY, CONTRACT, FAILED, FORBIDDEN, LATER, CommandError
from fairlease.cli.parser import account_of
from fairlease.runtime import keys
from fairlease.runtime.connection import Connection, connect, settle
from fairlease.runtime.errors import BusAway, ConfigWrong
from fairlease.runtime.redaction import redacted
from fairlease.runtime.settings import Settings, read_settings, servers_in
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import CommandAnswer, Health, Reply, Trouble
from fairlease_schemas.subjects import VERBS, Subjects, last_token

ASK_S: Final = 5.0
PUBLISH_S: Final = 5.0
CLOSED_S: Final = 0.5
"""How long a submission waits for a word of admission before it is sent anyway."""
SETTLE_S: Final = 10
REREAD_S: Final = 1.0
"""How often an answer that was not heard is looked for in the store."""

_TOO_LARGE: Final = 10054
_REPLIES: Final = msgspec.json.Decoder(Reply)
_START: Final = "start the cell with `fairlease up`, or let `fairlease doctor` say what is missing"


class Answer(NamedTuple):
    """A reply as the cell wrote it, newer keys included, and as this program understands it."""

    raw: bytes
    view: Reply


class Receipt(NamedTuple):
    """The answer to a command: its bytes and their meaning."""

    raw: bytes
    answer: CommandAnswer


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a job's log on one host; `next` is the byte offset to go on from."""

    data: str = ""
    next: int = 0
    is_end: bool = False
    problem: str = ""


class Link:
    """A connection that speaks for one account."""

    def __init__(self, client: Connection, settings: Settings, account: str) -> None:
        self.client = client
        self.settings = settings
        self.account = account
        self.subjects: Subjects = settings.subjects

    async def ask(self, question: str, body: dict[str, Any]) -> Answer:
        """The explainer's reply.

        Raises CommandError: 69 when nobody replies within 5 s or the reply is of another version,
        1 when the explainer knows no answer.
        """
        raw = await self.request("explainer", question, body)
        try:
            view = _REPLIES.decode(raw)
        except (ValueError, RecursionError) as error:
            raise CommandError(
                AWAY, f"the reply to `{question}` is not understood: {error}", way_out="run the version the cell runs"
            ) from error
        if isinstance(view, Trouble):
            is_strange = view.code in ("bad-question", "unknown-question") and not view.text.startswith("at ")
            way_out = "run the version the cell runs" if is_strange else ""
            raise CommandError(FAILED, view.text, way_out=way_out, facts={"trouble": view.code})
        return Answer(raw, view)

    async def request(self, service: str, question: str, body: dict[str, Any]) -> bytes:
        """The bytes a service replies with; CommandError 69 when none does."""
        try:
            reply = await self.client.request(
                self.subjects.ask(service, question), msgspec.json.encode(body), timeout=ASK_S
            )
        except nats.errors.NoRespondersError as error:
            raise CommandError(AWAY, f"no {service} answers in cell {self.settings.cell}", way_out=_START) from error
        except nats.errors.Error as error:
            raise CommandError(
                AWAY, f"the {service} of cell {self.settings.cell} did not answer: {error}", way_out=_START
            ) from error
        return reply.data

    async def closed(self) -> str:
        """Why admission takes no new work, in its words; empty when it does, and when nobody says."""
        try:
            asked = self.subjects.ask("admission", "health")
            return understood((await self.client.request(asked, b"{}", timeout=CLOSED_S)).data, Health).closed
        except (nats.errors.Error, Unreadable):
            return ""

    async def read_log(self, host: str, attempt: str, offset: int, limit: int) -> LogPage:
        """A page of the attempt's log on one host; CommandError 69 when its agent does not answer."""
        raw = await self.request(f"agent-{host}", "logs", {"attempt": attempt, "offset": offset, "limit": limit})
        try:
            return understood(raw, LogPage)
        except Unreadable as error:
            raise CommandError(AWAY, f"the log page of {host} is not understood: {error}") from error

    async def subscribe(self, subject: str) -> Subscription:
        """A plain subscription, known to the bus when this returns."""
        found = await self.client.subscribe(subject)
        await settle(self.client, SETTLE_S)
        return found

    async def send(self, verb: str, body: bytes, timeout_ms: int, host: str = "") -> Receipt:
        """Store a command, about `host` where it is about one, in the account's inbox and wait for its answer.

        Raises CommandError: 77 without an inbox or the right to write in it, 65 for a body above
        the inbox's limit, 75 when the bus did not confirm or the answer is not there in time.
        """
        anything = self.subjects.answer(self.account, 0).rpartition(".")[0] + ".*"
        heard = await self.subscribe(anything)
        seq = await self._publish(verb, body, host)
        try:
            return await self._answer(heard, seq, timeout_ms / 1000)
        finally:
            if self.client.is_connected:
                await heard.unsubscribe()

    async def _publish(self, verb: str, body: bytes, host: str) -> int:
        """The place of the command in the inbox."""
        try:
            ack = await self.client.jetstream().publish(
                self.subjects.command(self.account, verb, host), body, timeout=PUBLISH_S
            )
        except nats.js.errors.NoStreamResponseError as error:
            raise CommandError(
                FORBIDDEN,
                f"account {self.account} has no inbox in cell {self.settings.cell}",
                way_out=f"{inbox_way_out(self.account)}; or name another with --account",
            ) from error
        except nats.js.errors.APIError as error:
            if error.err_code == _TOO_LARGE:
                raise CommandError(CONTRACT, "the command is larger than the inbox takes") from error
            raise CommandError(
                LATER, f"the inbox did not take the command: {error.description}", way_out="try again later"
            ) from error
        except nats.errors.Error as error:
            if "permissions violation" in str(self.client.last_error).lower():
                about = f" about {host}" if host else ""
                raise CommandError(FORBIDDEN, f"account {self.account} may not send `{verb}`{about}") from error
            raise CommandError(
                LATER, f"the bus did not confirm the command: {error}", way_out="ask again: the same twice does no harm"
            ) from error
        return ack.seq

    async def _answer(self, heard: Subscription, seq: int, timeout_s: float) -> Receipt:
        now = asyncio.get_running_loop().time
        deadline, reread_at = now() + timeout_s, now() + REREAD_S
        while (left_s := deadline - now()) > 0:
            raw = None
            try:
                message = await heard.next_msg(timeout=min(left_s, max(reread_at - now(), 0.001)))
                raw = message.data if last_token(message.subject) == str(seq) else None
            except nats.errors.Error:
                await asyncio.sleep(0.01)
            if raw is None and now() >= reread_at:
                reread_at = now() + REREAD_S
                raw = await self._stored(seq)
            if raw is not None:
                return Receipt(raw, _understood(raw))
        raise CommandError(
            LATER,
            f"no answer yet: the command is number {seq} in the inbox of {self.account} and will be answered",
            way_out="ask again later: the same twice does no harm",
        )

    async def _stored(self, seq: int) -> bytes | None:
        """The answer as the feed keeps it; None when it is not there or the feed cannot be read."""
        subject = f"{VERBS}.DIRECT.GET.{self.subjects.feed_stream}.{self.subjects.answer(self.account, seq)}"
        try:
            message = await self.client.request(subject, b"", timeout=PUBLISH_S)
        except nats.errors.Error:
            return None
        return None if (message.headers or {}).get("Status") else message.data


def inbox_way_out(account: str) -> str:
    """How an account gets an inbox: inboxes are made when a cell starts."""
    return f"stop the cell (Ctrl-C; running jobs go on) and start it again with `fairlease up --account {account}`"


def _understood(raw: bytes) -> CommandAnswer:
    try:
        return understood(raw, CommandAnswer)
    except Unreadable as error:
        raise CommandError(
            AWAY, f"the answer is not understood: {error}", way_out="run the version the cell runs"
        ) from error


def _check_address(url: str) -> None:
    """Refuse what is no address of a bus, which the client library would only stumble over; CommandError 69."""
    servers = servers_in(url)
    if not servers or not all(map(_is_address, servers)):
        raise CommandError(
            AWAY,
            f"FAIRLEASE_URL={redacted(url)[:80]!r} is not an address",
            way_out="write it as nats://HOST:PORT or tls://HOST:PORT, several servers with commas between them",
        )


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@asynccontextmanager
async def linked(args: argparse.Namespace) -> AsyncIterator[Link]:
    """A link for the duration of one command.

    CommandError: 69 when no bus is known or it does not answer, 77 without a key that it knows.
    """
    account = account_of(args)
    # What the client would log is said by the errors raised here, in better words.
    logger = logging.getLogger("fairlease")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        async with _connected(account) as link:
            yield link
    finally:
        logger.setLevel(level)


@asynccontextmanager
async def _connected(account: str) -> AsyncIterator[Link]:
    try:
        settings = read_settings()
        _check_address(settings.bus_url())
        key = keys.find(settings, keys.client_name(account))
        client = await connect(settings, f"fairlease-cli-{account}", key=key, exit_on_close=False)
    except keys.KeyUnusable as error:
        raise CommandError(FORBIDDEN, str(error)) from error
    except keys.NoKey as error:
        raise CommandError(
            FORBIDDEN, str(error), way_out=f"{inbox_way_out(account)}; or name another account"
        ) from error
    except (BusAway, ConfigWrong) as error:
        raise CommandError(AWAY, str(error)) from error
    try:
        yield Link(client, settings, account)
    finally:
        await client.close()
