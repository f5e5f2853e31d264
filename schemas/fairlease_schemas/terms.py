"""The terms a contract is made of: lengths, names, texts, and the blocks below `spec`.

Each says what may be written and what is told to whoever wrote something else. Text that a secret
could stand in is looked at for one; the value is never repeated in the answer (1.13).
"""

import re
import unicodedata
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from fairlease_schemas.credential import kind_of
from fairlease_schemas.ids import JOB_PATTERN, NAME_PATTERN
from fairlease_schemas.units import MAX_LENGTH_MS, SECOND_MS, parse_length_ms, parse_memory_mib

MAX_ARRAY: Final = 200
"""Jobs of one array: they are admitted whole, in one record."""

MAX_AFTER: Final = 32
MAX_LABELS: Final = 16
MAX_WORLD: Final = 1 << 18
MAX_URI_CHARS: Final = 1_024
MAX_MIB: Final = 1 << 30
LABEL_PATTERN: Final = r"^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$"
LENGTH_PATTERN: Final = "^([0-9]{1,12}(ms|s|m|h|d))+$"
MEMORY_PATTERN: Final = "^[0-9]{1,9}(Mi|Gi|Ti)$"
SCHEMES: Final = ("s3", "gs", "az")

CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_URI: Final = re.compile(r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>[^/]*)|store:(?P<store>[^/]*))/(?P<path>.*)")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_ADDRESS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)+")
"""No store lets a bucket look like one, and some client might connect to it."""
_PATH: Final = re.compile(r"[A-Za-z0-9._=+@:,-]+(?:/[A-Za-z0-9._=+@:,-]+)*/?")
_URI_WAY_OUT: Final = "write s3://, gs:// or az:// with bucket and path, or store:NAME/PATH"


def _length(value: object) -> object:
    """A length written with its unit, as milliseconds; anything else is told what to write."""
    if isinstance(value, str):
        return parse_length_ms(value)
    raise ValueError("write a length with its unit in quotes or plain text, for example 30m or 1h30m")


def _memory(value: object) -> object:
    """An amount of memory written with its unit, as mebibytes."""
    if isinstance(value, str):
        return parse_memory_mib(value)
    raise ValueError("write an amount with its unit, for example 64Gi")


def printable(value: object) -> object:
    """Text without control, bidirectional or invisible separator characters, in normal form C."""
    if not isinstance(value, str):
        return value
    found = CONTROL.search(value)
    if found is not None:
        raise ValueError(f"character U+{ord(found.group()):04X} is not allowed: remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text holds half of a surrogate pair: write valid Unicode") from error
    return unicodedata.normalize("NFC", value)


def _plain(value: object) -> object:
    """Printable text that does not look like a secret."""
    text = printable(value)
    kind = kind_of(text) if isinstance(text, str) else ""
    if kind:
        raise ValueError(secret_told(kind))
    return text


def secret_told(kind: str) -> str:
    """What is said of text that looks like a secret; the text itself is not repeated."""
    return f"this looks like {kind}: take it out; keep it in a file that the job's user can read, and name the file"


def _uri(value: object) -> object:
    """Where checkpoints go: a known scheme, nothing that is a secret, nothing that leads elsewhere."""
    text = _plain(value)
    if not isinstance(text, str):
        return text
    found = _URI.fullmatch(text)
    if found is None or (found["scheme"] and found["scheme"] not in SCHEMES):
        raise ValueError(f"not a place for checkpoints: {_URI_WAY_OUT}")
    if "@" in (found["place"] or ""):
        raise ValueError("no user or password in a place for checkpoints: the store knows who may write")
    name, pattern = (found["place"], _BUCKET) if found["scheme"] else (found["store"], re.compile(NAME_PATTERN))
    if pattern.fullmatch(name) is None or _ADDRESS.fullmatch(name) is not None:
        raise ValueError(f"that is no name of a bucket or store: {_URI_WAY_OUT}")
    path = found["path"]
    if {".", ".."} & set(path.split("/")):
        raise ValueError("no . or .. in a path: write where it really is")
    if path and _PATH.fullmatch(path) is None:
        raise ValueError("a path has letters, digits and . _ = + @ : , - between single slashes")
    return text


LengthMs = Annotated[
    int,
    BeforeValidator(_length),
    Field(ge=0, le=MAX_LENGTH_MS),
    WithJsonSchema({"type": "string", "pattern": LENGTH_PATTERN, "examples": ["30m", "1h30m"]}),
]
MemoryMib = Annotated[
    int,
    BeforeValidator(_memory),
    Field(ge=1, le=MAX_MIB),
    WithJsonSchema({"type": "string", "pattern": MEMORY_PATTERN, "examples": ["64Gi"]}),
]
Text = Annotated[str, BeforeValidator(printable)]
Plain = Annotated[str, BeforeValidator(_plain)]
Name = Annotated[
    str,
    BeforeValidator(printable),
    Field(pattern=NAME_PATTERN),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN}),
]
Count = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
LabelKey = Annotated[str, Field(pattern=LABEL_PATTERN)]
LabelValue = Annotated[Plain, Field(max_length=63)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_LABELS)]
Place = Annotated[str, BeforeValidator(_uri), Field(max_length=MAX_URI_CHARS)]
Fingerprint = Annotated[Plain, Field(min_length=1, max_length=256)]


class Strict(BaseModel):
    """Unknown keys are refused, and no error repeats what was written."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Checkpoint(Strict):
    """How an attempt saves itself: where, how often, and what it is told when it must stop (1.7)."""

    grace: LengthMs = Field(default=30_000, description="time between the notice and the TERM to all")
    uri: Place | None = None
    interval: LengthMs | None = None
    signal: Literal["TERM", "USR1", "USR2", "none"] = "TERM"

    @model_validator(mode="after")
    def _has_a_pace(self) -> "Checkpoint":
        if self.interval is not None and self.interval < SECOND_MS:
            raise ValueError("interval: checkpoints are at least 1s apart; write for example interval: 20m")
        return self


class Constraints(Strict):
    """What every host of the gang must be; a request that no registered hosts could meet is refused (1.3)."""

    gpu_model: Annotated[tuple[Annotated[Plain, Field(min_length=1, max_length=64)], ...], Field(max_length=16)] = ()
    min_gpu_memory: MemoryMib | None = None
    labels: Labels = {}
    same_block: Flag = False


class State(Strict):
    """What a resumed run must match (1.9)."""

    commit: Fingerprint | None = None
    data: Fingerprint | None = None
    model: Fingerprint | None = None
    runtime: Fingerprint | None = None
    world_size: Annotated[Count, Field(ge=1, le=MAX_WORLD)] | None = None
    rng: Fingerprint | None = None


class Array(Strict):
    """Like jobs, each with an index from 0 (1.11)."""

    count: Annotated[Count, Field(ge=1, le=MAX_ARRAY)]
    parallel: Annotated[Count, Field(ge=1, le=MAX_ARRAY)] | None = None


class After(Strict):
    """A job that must be over before this one competes (1.11)."""

    job: Annotated[str, Field(pattern=JOB_PATTERN)]
    when: Literal["ok", "any"] = "ok"


REPO_PATTERN: Final = (
    r"^((https://|ssh://([a-z_][a-z0-9_-]{0,31}@)?|[a-z_][a-z0-9_-]{0,31}@)"
    r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?[/:]|file:///)[A-Za-z0-9._~/+-]+$"
)
COMMIT_PATTERN: Final = r"^([0-9a-f]{40}|[0-9a-f]{64})$"
BUNDLE_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"
Repo = Annotated[
    Plain,
    Field(pattern=REPO_PATTERN, max_length=512),
    WithJsonSchema({"type": "string", "pattern": REPO_PATTERN, "maxLength": 512}),
]


class Source(Strict):
    """The code that runs: a commit of a repository, or a bundle by its digest (1.13)."""

    repo: Repo | None = None
    commit: Annotated[str, Field(pattern=COMMIT_PATTERN)] | None = None
    bundle: Annotated[str, Field(pattern=BUNDLE_PATTERN)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Source":
        if (self.repo is None) != (self.commit is None) or (self.repo is None) == (self.bundle is None):
            raise ValueError("source: write repo and commit, or a bundle, and not both")
        return self


def without_defaults(model: BaseModel) -> dict[str, Any]:
    """A block as the canonical body holds it: what is not at its default, lengths and sizes with their units."""
    plain: dict[str, Any] = model.model_dump(mode="json", exclude_defaults=True)
    return {key + UNITS.get(key, ""): value for key, value in plain.items()}


UNITS: Final = {
    "min_runtime": "_ms",
    "timeout": "_ms",
    "grace": "_ms",
    "interval": "_ms",
    "start_limit": "_ms",
    "min_gpu_memory": "_mib",
    "memory_per_host": "_mib",
    "disk_per_host": "_mib",
}
"""The unit that a key is written with in the body."""
