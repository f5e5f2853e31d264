"""Commands, reports, timers and questions, through faststream: the one place that knows its traps.

Each rule below answers a defect of faststream 0.7 that tests/services/test_bus.py shows (log.md L5):

* messages come as an ordered list (`batch=True`); one at a time, because a larger batch is held back
  until it is full or its time is over, and a batch without `batch=True` runs out of order;
* nothing is acknowledged (ack policy manual, consumer ack none), and the decoder never raises: a
  message that failed is read again from the same place, never dropped;
* nothing is published to a `reply_to` header; answers go to inboxes alone, because the
  sender chooses the reply subject, and the service may write where the sender may not;
* only the bus's own word is taken for it: a header `Status` of a stored message is its sender's, and the
  client would skip the message, or take the consumer for gone and never get past it;
* a consumer that is gone parks its loop, which would spin, and is made again; so after a reconnection;
* the connection never gives up, ends the process when it is closed, and a watchdog outside the event
  loop ends a process whose loop no longer turns.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import nats.errors
from faststream import AckPolicy
from faststream.message import StreamMessage
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.security import NatsNKey, NatsSecurity
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy as ConsumerAck
from nats.js.api import ConsumerConfig, DeliverPolicy

from fairlease.runtime import keys, tls
from fairlease.runtime.connection import Guard, end_reconnecting, is_inbox, settle
from fairlease.runtime.settings import Settings, servers_in
from fairlease.runtime.tasks import end
from fairlease.runtime.watchdog import Watchdog
from fairlease_schemas.codec import canonical
from fairlease_schemas.explain import Trouble
from fairlease_schemas.subjects import VERBS, last_token

log = logging.getLogger("fairlease.bus")

_FLUSH_S: Final = 1
_FETCH_S: Final = 2.0
"""How long one request waits for a message: also the time in which a deleted consumer is noticed."""
_THRESHOLD_S: Final = 60.0
_AGAIN_S: Final = 0.2


class Message(msgspec.Struct, frozen=True):
    """One message of a stream; `time_ms` is the bus's timestamp."""

    stream: str
    seq: int
    time_ms: int
    subject: str
    data: bytes
    headers: Mapping[str, str] = {}


OnMessages = Callable[[list[Message]], Awaitable[None]]
Handler = Callable[[bytes], Awaitable[bytes]]


class Bus:
    """One process's connection: `start`, then `inputs` and `questions`, then `stop`."""

    def __init__(self, settings: Settings, *, exit_on_close: bool = True) -> None:
        self._settings = settings
        self.guard = Guard(f"{settings.service}-{settings.replica}", exit_on_close=exit_on_close)
        key = keys.find(settings, keys.service_name(settings.service))
        sealing = tls.options(settings.bus_url(), tls.authority_of(settings))
        # The broker's own names for what a client calls `tls` and `tls_handshake_first`.
        sealed: dict[str, Any] = {
            "ssl_context": sealing.get("tls"),
            "tls_handshake_first": sealing.get("tls_handshake_first", False),
        }
        self._broker = NatsBroker(
            servers_in(settings.bus_url()),
            security=NatsSecurity(**sealed) if key is None else NatsNKey.from_seed(key.seed.reveal(), **sealed),
            logger=None,
            apply_types=False,
            graceful_timeout=0.5,
            js_options={"prefix": VERBS},
            **self.guard.options(),
            inbox_prefix=key.inbox_prefix if key is not None else "_INBOX",
        )
        self._client: Client | None = None
        self._inputs: list[_Input] = []
        self._answering: list[Any] = []
        self._watchdog = Watchdog()

    @property
    def client(self) -> Client:
        """The connection, for the log, timers and publications too: one is enough, nothing on it waits."""
        assert self._client is not None, "Bus.start comes first"
        return self._client

    async def start(self) -> None:
        """Connects, waiting for the bus as long as it takes."""
        self._client = await self._broker.connect()
        self.guard.on_reconnect(self._renew_all)
        self._watchdog.start()

    async def stop(self) -> None:
        """Ends all subscriptions and the connection; running handlers get half a second."""
        self.guard.is_closing = True
        self._watchdog.stop()
        await asyncio.gather(*(feed.stop() for feed in self._inputs), return_exceptions=True)
        await asyncio.gather(*(subscriber.stop() for subscriber in self._answering), return_exceptions=True)
        if self._client is not None:
            try:
                await self._client.close()
            except (OSError, asyncio.CancelledError, nats.errors.Error) as error:
                log.debug("bus: closing: %s", error)
            await end_reconnecting(self._client)

    async def inputs(self, stream: str, filter_subjects: list[str], start_after_seq: int, on_batch: OnMessages) -> None:
        """Hands every message of the stream after that sequence to `on_batch`, in order.

        Each message comes until `on_batch` returned for it once; when it raises, the same messages
        come again after 0.2 s. Sequences may have gaps, because the filter leaves others out.
        """
        # Of a connection's own prefix faststream knows nothing, and the default one is nobody's to hear.
        inbox_prefix = self.client.new_inbox().encode().rpartition(b".")[0] + b"."
        feed = _Input(self._broker, inbox_prefix, stream, filter_subjects, start_after_seq, on_batch)
        self._inputs.append(feed)
        feed.start()

    async def questions(self, service: str, handlers: dict[str, Handler]) -> None:
        """Answers `ask.<service>.<question>`; a question nobody knows gets a `Trouble`.

        Only replies to an inbox are sent, however the question names another subject.
        """

        async def answer(message: Msg) -> None:
            if not is_inbox(message.reply):
                log.warning("bus: a question wants its answer on %r; refused", message.reply[:200])
                return
            question = last_token(message.subject)
            await self.client.publish(message.reply, await _answered(handlers.get(question), question, message.data))

        subscriber = self._broker.subscriber(
            self._settings.subjects.ask(service, "*"),
            decoder=_raw_message,
            ack_policy=AckPolicy.MANUAL,
            no_reply=True,
            persistent=False,
            include_in_schema=False,
        )
        subscriber(answer)
        self._answering.append(subscriber)
        await subscriber.start()
        # Whoever asks from now on finds somebody: the bus has the subscription when this returns. When it is
        # away it gets it with the next connection.
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await settle(self.client, _FLUSH_S)

    def _renew_all(self) -> None:
        for feed in self._inputs:
            feed.renew()


class _Input:
    """One stream's feed: a faststream subscriber that is made anew whenever its consumer is gone."""

    def __init__(
        self,
        broker: NatsBroker,
        inbox_prefix: bytes,
        stream: str,
        filter_subjects: list[str],
        last_seq: int,
        on_batch: OnMessages,
    ) -> None:
        self._broker = broker
        self._inbox_prefix = inbox_prefix
        self._stream = stream
        self._filters = filter_subjects
        self._last_seq = last_seq
        self._on_batch = on_batch
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"inputs-{self._stream}")

    def renew(self) -> None:
        self._gone.set()

    async def stop(self) -> None:
        if self._task is not None:
            await end([self._task])

    async def _run(self) -> None:
        while True:
            self._gone.clear()
            subscriber = self._subscriber()
            try:
                await subscriber.start()
                subscriber.subscription = _Parked(subscriber.subscription, self._gone)
                await self._gone.wait()
            except (nats.errors.Error, OSError) as error:
                log.warning("bus: inputs of %s: %s", self._stream, error)
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                # Whoever ends here reads nothing any more, and answers on as if he did.
                log.exception("bus: inputs of %s failed and are made again", self._stream)
                await asyncio.sleep(_AGAIN_S)
            finally:
                await self._end(subscriber)

    def _subscriber(self) -> Any:  # noqa: ANN401 - the class is internal to faststream
        config = ConsumerConfig(
            filter_subjects=list(self._filters),
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._last_seq + 1,
            ack_policy=ConsumerAck.NONE,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=_THRESHOLD_S,
        )
        subscriber = self._broker.subscriber(
            config=config,
            stream=JStream(self._stream, declare=False),
            pull_sub=PullSub(batch_size=1, timeout=_FETCH_S, batch=True),
            inbox_prefix=self._inbox_prefix,
            decoder=_messages,
            ack_policy=AckPolicy.MANUAL,
            no_reply=True,
            persistent=False,
            include_in_schema=False,
        )
        subscriber(self._handle)
        return subscriber

    async def _handle(self, messages: list[Message]) -> None:
        fresh = [message for message in messages if message.seq > self._last_seq]
        if not fresh or self._gone.is_set():
            return
        try:
            await self._on_batch(fresh)
        except Exception:
            log.exception("bus: inputs of %s from %d failed and come again", self._stream, fresh[0].seq)
            await asyncio.sleep(_AGAIN_S)
            self._gone.set()
            return
        self._last_seq = fresh[-1].seq

    async def _end(self, subscriber: Any) -> None:  # noqa: ANN401 - as above
        try:
            await subscriber.stop()
        except Exception as error:  # noqa: BLE001 - it is given up, whatever it says; another one takes its place
            log.debug("bus: inputs of %s: %s", self._stream, error)


def _bus_word(message: Msg | None) -> str | None:
    """The status of a message of the bus itself; a stored one has a place, which is where it would be acknowledged."""
    if message is None or message.headers is None or message.reply.startswith("$JS.ACK."):
        return None
    return message.headers.get("Status")


setattr(JetStreamContext, "is_status_msg", staticmethod(_bus_word))  # noqa: B010 - the client's own is wrong


class _Parked:
    """A pull subscription whose `fetch` tells of a consumer that is gone, and then waits to be ended."""

    def __init__(self, inner: JetStreamContext.PullSubscription, gone: asyncio.Event) -> None:
        self._inner = inner
        self._gone = gone

    async def fetch(self, batch: int, timeout: float) -> list[Msg]:  # noqa: ASYNC109 - faststream's call
        """As the inner `fetch`, but it does not return once the bus said that nobody listens.

        The client swallows the bus's word that a consumer was deleted and waits its time out; the
        next request is then refused at once. So a loss is seen within one `timeout`.
        """
        try:
            return await self._inner.fetch(batch=batch, timeout=timeout)
        except TimeoutError:
            raise
        except nats.errors.Error as error:
            log.info("bus: consumer lost (%s), making it again", type(error).__name__)
            self._gone.set()
            await asyncio.Event().wait()
            raise

    async def unsubscribe(self) -> None:
        await self._inner.unsubscribe()


async def _messages(message: StreamMessage[Any]) -> list[Message]:
    """A batch in our own words. Bodies stay bytes: reading them is the service's, which never raises."""
    batch = []
    for raw in message.raw_message:
        place = raw.metadata
        time_ms = int(place.timestamp.timestamp() * 1_000)
        batch.append(Message(place.stream, place.sequence.stream, time_ms, raw.subject, raw.data, raw.headers or {}))
    return batch


async def _raw_message(message: StreamMessage[Msg]) -> Msg:
    return message.raw_message


async def _answered(handler: Handler | None, question: str, data: bytes) -> bytes:
    if handler is None:
        return canonical(Trouble(code="unknown-question", text=f"nobody here answers {question[:80]!r}"))
    try:
        return await handler(data)
    except Exception:
        log.exception("bus: question %s failed", question)
        return canonical(Trouble(code="bad-question", text=f"{question[:80]!r} could not be answered; see the log"))
