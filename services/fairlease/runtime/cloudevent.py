"""A command that comes as a CloudEvent: what it carries, when the envelope agrees with where it was sent.

Both modes of the NATS binding are taken. *Binary*: the body is the command and headers `ce-…` are the
attributes. *Structured*: the content type is `application/cloudevents+json`, and the command is `data`. Without
a header of either the body is the command, as ever.

The surprising choice: the type must name the verb of the subject. An envelope that says something else than the
subject was made for another message, and guessing which of the two is meant would be a decision. Source and time are
claims and are not kept: who sent it is told by the stream.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from fairlease.runtime.strict import strict_json

TYPE_PREFIX: Final = "dev.fairlease."
REQUIRED: Final = ("specversion", "id", "source", "type")
_SPECVERSION: Final = "1.0"
_STRUCTURED: Final = "application/cloudevents"
_JSON_FORM: Final = "application/cloudevents+json"
_BODIES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SHOWN: Final = 60


class EnvelopeWrong(ValueError):
    """The envelope is no CloudEvent with such a command: `field` is the header or key, the text says the way out."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field


def opened(verb: str, headers: Mapping[str, str], data: bytes) -> tuple[bytes, str]:
    """The command's bytes, and the event's id; as they came and an empty id where it is no CloudEvent.

    Raises EnvelopeWrong; ValueError or RecursionError for a structured event that is no strict JSON.
    """
    known = _known(headers)
    content_type = known.get("content-type", "")
    if content_type.partition(";")[0].strip().lower().startswith(_STRUCTURED):
        return _structured(verb, content_type, data)
    attributes = {name: known[f"ce-{name}"] for name in REQUIRED if f"ce-{name}" in known}
    if not attributes:
        return data, ""
    _check(verb, attributes, "ce-")
    _check_content(content_type, "content-type")
    return data, attributes["id"]


def with_request_id(data: bytes, request_id: str) -> bytes:
    """The body with the event's id for its request id, when it has none of its own; what is no object stays.

    A sender that repeats an event repeats its id: so the same event is the same request (1.14). It is put in front of
    what was written, so that a key that stands there twice still does when somebody looks for one.
    """
    try:
        body = _BODIES.decode(data)
    except (ValueError, RecursionError):
        return data
    if "request_id" in body:
        return data
    before, _, rest = data.partition(b"{")
    return before + b'{"request_id":' + msgspec.json.encode(request_id) + b"," * bool(body) + rest


def _known(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that say what the body is, by names in lower case; EnvelopeWrong for one that stands there twice."""
    known: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower != "content-type" and lower.removeprefix("ce-") not in REQUIRED:
            continue
        if lower in known:
            raise EnvelopeWrong(lower, "this header stands there twice: write it once")
        known[lower] = value.strip()
    return known


def _structured(verb: str, content_type: str, data: bytes) -> tuple[bytes, str]:
    if content_type.partition(";")[0].strip().lower() != _JSON_FORM:
        raise EnvelopeWrong("content-type", f"{content_type[:_SHOWN]!r} is not taken: write {_JSON_FORM}")
    event = strict_json(data)
    if not isinstance(event, dict):
        raise EnvelopeWrong("specversion", "a CloudEvent is a JSON object: write one")
    attributes = {name: event[name] for name in REQUIRED if name in event}
    _check(verb, attributes, "")
    _check_content(event.get("datacontenttype", ""), "datacontenttype")
    if "data_base64" in event:
        raise EnvelopeWrong("data_base64", "a command is JSON: write it as `data`")
    if not isinstance(event.get("data"), dict):
        raise EnvelopeWrong("data", "the command stands here as a JSON object: write it")
    return bytes(_BODIES.decode(data)["data"]), attributes["id"]


def _check(verb: str, attributes: Mapping[str, object], prefix: str) -> None:
    """The four attributes that every CloudEvent has, and their agreement with the subject."""
    for name in REQUIRED:
        value = attributes.get(name)
        if not isinstance(value, str) or not value:
            raise EnvelopeWrong(prefix + name, "missing, and every CloudEvent has it: write it as text")
    if attributes["specversion"] != _SPECVERSION:
        raise EnvelopeWrong(
            f"{prefix}specversion", f"{str(attributes['specversion'])[:_SHOWN]!r}: write {_SPECVERSION}"
        )
    if attributes["type"] != TYPE_PREFIX + verb:
        told = f"{str(attributes['type'])[:_SHOWN]!r} does not agree with the subject: write {TYPE_PREFIX}{verb}"
        raise EnvelopeWrong(f"{prefix}type", told)


def _check_content(value: object, field: str) -> None:
    kind = value.partition(";")[0].strip().lower() if isinstance(value, str) else value
    if kind not in ("", "application/json"):
        raise EnvelopeWrong(field, f"{str(value)[:_SHOWN]!r} is not taken: a command is application/json")
