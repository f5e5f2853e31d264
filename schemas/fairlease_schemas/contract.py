"""The contract: what a submitter promises and is promised, as people write it.

Kubernetes-shaped (`apiVersion`, `kind`, `metadata`, `spec`); the JSON Schema in `schemas/json` comes
from here. pydantic lives only at this edge, because here people need good messages; decisions see
`job.Request`, which `scheduling_fields` makes of a contract. Unknown keys are refused.
"""

import re
import unicodedata
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fairlease_schemas.ids import NAME_PATTERN, REQUEST_ID_PATTERN
from fairlease_schemas.job import Problem, Request
from fairlease_schemas.units import MAX_LENGTH_MS, format_length, parse_length_ms

MAX_HOSTS: Final = 16_384
MAX_GPUS_PER_HOST: Final = 16
MAX_RETRIES: Final = 100
MAX_ARGUMENTS: Final = 256
MAX_ARGUMENT_CHARS: Final = 8_192
MAX_ENV: Final = 128
MAX_CONTRACT_BYTES: Final = 48 * 1024

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_ENV_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_RULES: Final = {
    "budget": "1.1",
    "hosts": "1.2",
    "gpus_per_host": "1.2",
    "pools": "1.3",
    "min_runtime": "1.4",
    "timeout": "1.5",
    "on_timeout": "1.5",
    "resumable": "1.6",
    "checkpoint": "1.7",
    "max_retries": "1.8",
    "lane": "1.10",
    "command": "1.13",
    "env": "1.13",
}


def _length(value: object) -> object:
    """A length written with its unit, as milliseconds; anything else is told what to write."""
    if isinstance(value, str):
        return parse_length_ms(value)
    raise ValueError("write a length with its unit in quotes or plain text, for example 30m or 1h30m")


def _printable(value: object) -> object:
    """Text without control, bidirectional or invisible separator characters, in normal form C."""
    if not isinstance(value, str):
        return value
    found = _CONTROL.search(value)
    if found is not None:
        raise ValueError(f"character U+{ord(found.group()):04X} is not allowed: remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text holds half of a surrogate pair: write valid Unicode") from error
    return unicodedata.normalize("NFC", value)


LengthMs = Annotated[
    int,
    BeforeValidator(_length, json_schema_input_type=str),
    Field(ge=0, le=MAX_LENGTH_MS, examples=["30m", "1h30m"]),
]
Text = Annotated[str, BeforeValidator(_printable)]
Name = Annotated[str, BeforeValidator(_printable), Field(pattern=NAME_PATTERN)]
Count = Annotated[int, Field(strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Metadata(_Strict):
    """What the job is called, for people; the id is made from account, budget and request id."""

    name: Annotated[Text, Field(min_length=1, max_length=128)] = "job"


class Checkpoint(_Strict):
    """How an attempt saves itself when it is asked to stop (1.7)."""

    grace: LengthMs = Field(default=30_000, description="time between the notice and the kill")


class Spec(_Strict):
    """The contract itself; each field names its rule in docs/contract."""

    budget: Name
    hosts: Annotated[Count, Field(ge=1, le=MAX_HOSTS)] = 1
    gpus_per_host: Annotated[Count, Field(ge=1, le=MAX_GPUS_PER_HOST)] = 1
    pools: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] | None = None
    min_runtime: LengthMs
    timeout: LengthMs
    on_timeout: Literal["fail", "requeue"] = "fail"
    resumable: Annotated[bool, Field(strict=True)] = True
    checkpoint: Checkpoint = Checkpoint()
    max_retries: Annotated[Count, Field(ge=0, le=MAX_RETRIES)] = 0
    lane: Literal["debug"] | None = None
    command: Annotated[
        tuple[Annotated[Text, Field(max_length=MAX_ARGUMENT_CHARS)], ...],
        Field(min_length=1, max_length=MAX_ARGUMENTS),
    ]
    env: Annotated[
        dict[Annotated[str, Field(pattern=_ENV_NAME)], Annotated[Text, Field(max_length=MAX_ARGUMENT_CHARS)]],
        Field(max_length=MAX_ENV),
    ] = {}

    @model_validator(mode="after")
    def _ends_after_its_window(self) -> "Spec":
        if self.timeout < 1_000:
            raise ValueError("timeout: an attempt needs at least 1s; write for example timeout: 1h")
        if self.resumable and self.min_runtime > self.timeout:
            raise ValueError(
                f"min_runtime {format_length(self.min_runtime)} is above timeout {format_length(self.timeout)}: "
                "an attempt cannot be protected for longer than it may run"
            )
        if len(set(self.pools or ())) != len(self.pools or ()):
            raise ValueError("pools: the same pool stands there twice; name each once")
        return self


class Contract(_Strict):
    """One job contract, `apiVersion: fairlease/v1`, `kind: Job`."""

    apiVersion: Literal["fairlease/v1"]  # noqa: N815 - the key is spelled as Kubernetes spells it
    kind: Literal["Job"]
    metadata: Metadata = Metadata()
    spec: Spec


def read_contract(data: object) -> tuple[Contract | None, tuple[Problem, ...]]:
    """The contract in plain data, or every problem found in it, in the order of the fields."""
    try:
        return Contract.model_validate(data), ()
    except ValidationError as error:
        errors = [dict(e) for e in error.errors(include_url=False, include_context=True)]
        # A list whose items are wrong is also called too short: the items were told already.
        told = [e for e in errors if not (e["type"] == "too_short" and e["input"])]
        return None, tuple(_problem(e) for e in told[:20])


def body(contract: Contract) -> dict[str, Any]:
    """The canonical body: every field written out, lengths in integer milliseconds under `_ms` keys."""
    plain = contract.model_dump(mode="json")
    spec = plain["spec"]
    for key in ("min_runtime", "timeout"):
        spec[key + "_ms"] = spec.pop(key)
    spec["checkpoint"] = {"grace_ms": spec["checkpoint"]["grace"]}
    return plain


def scheduling_fields(contract: Contract) -> Request:
    """What a decision reads. Not resumable: the window is the whole timeout (1.6)."""
    spec = contract.spec
    return Request(
        hosts=spec.hosts,
        gpus_per_host=spec.gpus_per_host,
        pools=spec.pools or (),
        min_runtime_ms=spec.min_runtime,
        timeout_ms=spec.timeout,
        grace_ms=spec.checkpoint.grace,
        is_resumable=spec.resumable,
        on_timeout=spec.on_timeout,
        max_retries=spec.max_retries,
        lane=spec.lane or "",
    )


def is_request_id(text: str) -> bool:
    """Whether `text` may be a request id."""
    return re.fullmatch(REQUEST_ID_PATTERN, text) is not None


def _problem(error: dict[str, Any]) -> Problem:
    """A pydantic error in the words of Problem: path, rule, value (shortened), limit and way out."""
    path = ".".join(str(part) for part in error["loc"])
    context = error.get("ctx", {})
    bounds = [f"{sign} {context[key]}" for key, sign in _BOUNDS.items() if key in context]
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "unknown key: remove it, or look its name up in the contract reference"
    elif error["type"] == "missing":
        message = "required: write it"
    keys = [str(part) for part in error["loc"]]
    if not keys[1:] and error["type"] == "value_error":
        keys += re.findall(r"^[a-z_]+", message)
    rule = next((_RULES[key] for key in reversed(keys) if key in _RULES), "1.1-1.17")
    return Problem(
        field=_harmless(path, 200),
        rule=rule,
        value=_shown(error.get("input")) if error["type"] not in ("missing", "value_error") else "",
        limit=", ".join(bounds)[:200],
        way_out=message[:300],
    )


_BOUNDS: Final = {"ge": ">=", "le": "<=", "min_length": "at least", "max_length": "at most", "expected": "one of"}


def _shown(value: object) -> str:
    """A refused value, short and printable; containers are named by their kind."""
    if isinstance(value, (dict, list, tuple, set)):
        return type(value).__name__
    if isinstance(value, int) and not -(10**18) < value < 10**18:
        return "a huge number"
    return _harmless(str(value), 80)


def _harmless(text: str, limit: int) -> str:
    """What somebody wrote, fit for the log and a terminal: normal form C, no control characters, cut."""
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", unicodedata.normalize("NFC", text)[:limit])
    return shown.encode("utf-8", "replace").decode()
