"""The edge: what a message said, as the part of it that a decision reads.

Nothing here raises for what a sender wrote: bytes that are no command or report become `Unreadable`,
which the service answers with a refusal. The sender is read from stream and subject, never from the
body. Submissions need the contract as well and are read by admission.
"""

import hashlib
import unicodedata
from typing import Any, Final

import msgspec

from fairlease.runtime import cloudevent
from fairlease.runtime.bus import Message
from fairlease.runtime.redaction import redacted
from fairlease.runtime.strict import no_credential, plain_text, strict_json
from fairlease_schemas import commands, reports
from fairlease_schemas.codec import canonical
from fairlease_schemas.credential import kind_of
from fairlease_schemas.envelope import Answer, Said, TimerFired, Unreadable
from fairlease_schemas.subjects import Subjects, last_token, token

_DECODERS: Final[dict[str, Any]] = {
    tag: msgspec.json.Decoder(kind) for tag, kind in {**commands.VERBS, **reports.KINDS}.items()
}
_HOST_TOKEN: Final = 3
_VERB_TOKEN: Final = 4
_OF_HOST_TOKEN: Final = 5
_MAX_ERROR: Final = 2_000


def sender(subjects: Subjects, message: Message) -> str:
    """Who sent it: the account of an inbox, else the host that the subject of a report names."""
    if message.stream.startswith(subjects.inbox_prefix):
        return subjects.account_of_inbox(message.stream)
    return token(message.subject, _HOST_TOKEN)


def answer_to(subjects: Subjects, message: Message, said: Said) -> Answer:
    """The answer to this message, saying that."""
    who = sender(subjects, message)
    return Answer(stream=message.stream, seq=message.seq, time_ms=message.time_ms, who=who, said=said)


def unreadable(data: bytes, error: object) -> Unreadable:
    """What is kept of bytes that cannot be read: size, SHA-256 and the reason in at most 200 characters.

    The reason may quote what was written, such as the name of a field: what looks like a secret goes out of it.
    Of an envelope that is wrong also which of its fields.
    """
    field = error.field if isinstance(error, cloudevent.EnvelopeWrong) else ""
    kind = kind_of(str(error))
    if kind:
        error = f"it holds what looks like {kind} (rule 1.13): leave it out"
    told = redacted(str(error)[:_MAX_ERROR])[:200]
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in told)
    text = unicodedata.normalize("NFC", shown.encode(errors="replace").decode())
    return Unreadable(size=len(data), sha256=hashlib.sha256(data).hexdigest(), error=text, field=field)


def read_said(message: Message) -> Any:  # noqa: ANN401 - one of the types of commands.VERBS and reports.KINDS
    """The body as the type that the subject's verb or kind names, or `Unreadable`.

    What does not mean one thing (a key twice), and what a record could not hold in canonical form (text
    not in normal form C, a float), is unreadable too, and so is a command whose text a terminal or a log would
    obey, or that holds what looks like a secret: the record that refuses it would keep it for ever. Reports are
    let be: what a process left behind is told as it is, and escaped where it is shown. The contract inside a
    `submit-job` is left as it came. A command may come as a CloudEvent (cloudevent.py). Where the subject names a
    host, the bus let the sender speak of that one: another in the body is unreadable.
    """
    verb = token(message.subject, _VERB_TOKEN)
    decoder = _DECODERS.get(verb)
    if decoder is None:
        return unreadable(message.data, "no such verb or kind")
    try:
        data = _carried(message, verb) if verb in commands.VERBS else message.data
        said = decoder.decode(data)
        strict_json(data)
        of_host = token(message.subject, _OF_HOST_TOKEN)
        if of_host and getattr(said, "host", of_host) != of_host:
            return unreadable(
                message.data, f"host: the subject is of {of_host}, the body of another; send one for each"
            )
        if not isinstance(said, commands.SubmitJob):
            plain = msgspec.to_builtins(said)
            canonical(plain)
            if verb in commands.VERBS:
                plain_text(plain)
                no_credential(plain)
    except (ValueError, RecursionError) as error:
        return unreadable(message.data, error)
    return said


def _carried(message: Message, verb: str) -> bytes:
    """The command in its envelope, if it has one; the event's id is its request id where it takes one and has none."""
    data, event_id = cloudevent.opened(verb, message.headers, message.data)
    has_request_id = "request_id" in commands.VERBS[verb].__struct_fields__
    return cloudevent.with_request_id(data, event_id) if event_id and has_request_id else data


def read_timer(service: str, message: Message) -> Answer | None:
    """A fired timer of the service; None for a message on its subject that is none."""
    text = last_token(message.subject)
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        return None
    said = TimerFired(due_ms=int(text))
    return Answer(stream=message.stream, seq=message.seq, time_ms=message.time_ms, who=service, said=said)
