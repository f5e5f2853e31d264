"""The contract: what a submitter promises and is promised, as people write it.

Kubernetes-shaped (`apiVersion`, `kind`, `metadata`, `spec`); the JSON Schema in `schemas/json` comes
from here. pydantic lives only at this edge, because here people need good messages; decisions see
`job.Request`, which `scheduling_fields` makes of a contract. Unknown keys are refused.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, ValidationError, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from fairlease_schemas import job, terms, told
from fairlease_schemas.codec import digest
from fairlease_schemas.credential import SECRET_NAMES, kind_of
from fairlease_schemas.job import Problem, Request
from fairlease_schemas.terms import CONTROL, Count, Flag, LengthMs, MemoryMib, Name, Plain, Strict
from fairlease_schemas.units import HOUR_MS, SECOND_MS, format_length

MAX_HOSTS: Final = 2_048
"""A grant names every host and GPU of the gang in one record of the log, which holds so many (log.md L2)."""
MAX_GPUS_PER_HOST: Final = 16
MAX_CPU_PER_HOST: Final = 4_096
MAX_RETRIES: Final = 100
MAX_ARGUMENTS: Final = 256
MAX_ARGUMENT_CHARS: Final = 8_192
MAX_ENV: Final = 128
MAX_CONTRACT_BYTES: Final = 48 * 1024
MAX_ARRAY_REQUEST_ID: Final = 124
"""An array's jobs are named by its request id, a slash and their index; this leaves room for both."""

_ENV_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_REFERENCE: Final = r"^secret:[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$"
_IMAGE: Final = (
    r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)
_RULES: Final = {
    "budget": "1.1",
    "hosts": "1.2",
    "gpus_per_host": "1.2",
    "cpu_per_host": "1.2",
    "memory_per_host": "1.2",
    "disk_per_host": "1.2",
    "pools": "1.3",
    "constraints": "1.3",
    "min_runtime": "1.4",
    "timeout": "1.5",
    "on_timeout": "1.5",
    "resumable": "1.6",
    "checkpoint": "1.7",
    "max_retries": "1.8",
    "state": "1.9",
    "lane": "1.10",
    "array": "1.11",
    "after": "1.11",
    "evaluation": "1.12",
    "labels": "1.12",
    "command": "1.13",
    "image": "1.13",
    "env": "1.13",
    "secrets": "1.13",
    "source": "1.13",
    "start_limit": "1.15",
    "terminal": "1.17",
}

EnvName = Annotated[str, Field(pattern=_ENV_NAME)]
Argument = Annotated[Plain, Field(max_length=MAX_ARGUMENT_CHARS)]
Reference = Annotated[Plain, Field(pattern=_REFERENCE), WithJsonSchema({"type": "string", "pattern": _REFERENCE})]
Image = Annotated[
    Plain,
    Field(pattern=_IMAGE, max_length=512),
    WithJsonSchema({"type": "string", "pattern": _IMAGE, "maxLength": 512}),
]


class Metadata(Strict):
    """What the job is called, for people; the id is made from account, budget and request id."""

    name: Annotated[Plain, Field(min_length=1, max_length=128)] = "job"


class Spec(Strict):
    """The contract itself; each field names its rule in docs/contract."""

    budget: Name
    hosts: Annotated[Count, Field(ge=1, le=MAX_HOSTS)] = 1
    gpus_per_host: Annotated[Count, Field(ge=1, le=MAX_GPUS_PER_HOST)] = 1
    cpu_per_host: Annotated[Count, Field(ge=1, le=MAX_CPU_PER_HOST)] | None = None
    memory_per_host: MemoryMib | None = None
    disk_per_host: MemoryMib | None = None
    pools: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] | None = None
    constraints: terms.Constraints | None = None
    min_runtime: LengthMs
    timeout: LengthMs
    on_timeout: Literal["fail", "requeue"] = "fail"
    resumable: Flag = True
    checkpoint: terms.Checkpoint = terms.Checkpoint()
    max_retries: Annotated[Count, Field(ge=0, le=MAX_RETRIES)] = 0
    state: terms.State | None = None
    lane: Literal["debug"] | None = None
    array: terms.Array | None = None
    after: Annotated[tuple[terms.After, ...], Field(max_length=terms.MAX_AFTER)] = ()
    evaluation: Name | None = None
    labels: terms.Labels = {}  # noqa: RUF012 - pydantic copies a default
    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=MAX_ARGUMENTS)] | None = None
    image: Image | None = None
    env: Annotated[dict[EnvName, Argument], Field(max_length=MAX_ENV)] = {}  # noqa: RUF012 - as above
    secrets: Annotated[dict[EnvName, Reference], Field(max_length=MAX_ENV)] = {}  # noqa: RUF012 - as above
    source: terms.Source | None = None
    start_limit: LengthMs | None = None
    terminal: Flag = False

    @model_validator(mode="after")
    def _hangs_together(self) -> "Spec":
        found = next(chain(self._times_told(), self._lists_told(), self._env_told(), self._terminal_told()), None)
        if found is not None:
            raise PydanticCustomError(_BETWEEN_FIELDS, "{way_out}", found._asdict())
        return self

    def _times_told(self) -> Iterator["_Told"]:
        """What is wrong between lengths."""
        timeout = format_length(self.timeout)
        if self.timeout < SECOND_MS:
            yield _Told("timeout", timeout, "at least 1s", "an attempt needs at least 1s; write for example 1h")
        if self.start_limit is not None and not SECOND_MS <= self.start_limit <= HOUR_MS:
            yield _Told("start_limit", format_length(self.start_limit), "1s to 1h", "write a length from 1s to 1h")

    def _lists_told(self) -> Iterator["_Told"]:
        """What stands there twice, or not at all."""
        pool = _twice(self.pools or ())
        if pool:
            yield _Told("pools", pool, "each pool once", "the same pool stands there twice; name each once")
        job_id = _twice(after.job for after in self.after)
        if job_id:
            yield _Told("after", job_id, "each job once", "the same job stands there twice; name each once")
        if self.array is not None and (self.array.parallel or 1) > self.array.count:
            way_out = "leave it out to let all of them run"
            yield _Told("array.parallel", str(self.array.parallel), f"the count, {self.array.count}", way_out)
        if self.command is None and self.image is None:
            yield _Told("command", "", "a command, or an image that has one", "write the command, or such an image")

    def _env_told(self) -> Iterator["_Told"]:
        """What the environment holds that it should not; what could be a secret is not repeated."""
        for name in sorted(self.env.keys() | self.secrets.keys()):
            if kind_of(name):
                yield _Told("env", "", "no secrets", terms.secret_told(kind_of(name)))
        for name in sorted(SECRET_NAMES & self.env.keys()):
            if self.env[name]:
                # Not `secrets`: no agent gives any yet, and a way out must not lead to a job that fails.
                way_out = f"{name} holds a secret; keep it in a file that the job's user can read, and name the file"
                yield _Told(f"env.{name}", "", "no secrets", way_out)
        for name in sorted(self.env.keys() & self.secrets.keys()):
            yield _Told(f"secrets.{name}", "", "each name once", f"{name} stands under env too; write it once")

    def _terminal_told(self) -> Iterator["_Told"]:
        """A terminal is one person's at one process, and short: what else the job may not be."""
        if not self.terminal:
            return
        if self.lane != "debug":
            yield _Told("terminal", "true", "lane: debug", "write lane: debug, or leave out the terminal")
        if self.hosts > 1:
            yield _Told("terminal", "true", "one host", "a terminal is on one host; leave it out for a gang")
        if self.array is not None:
            yield _Told("terminal", "true", "one job", "each job of an array has no terminal; submit one by itself")
        if self.command is None:
            yield _Told("terminal", "true", "a command", "write what runs in it, for example command: [bash, -i]")


class _Told(NamedTuple):
    """A problem between fields: the one it is told at, below `spec`, and what a Problem says of it."""

    field: str
    value: str
    limit: str
    way_out: str


_BETWEEN_FIELDS: Final = "between_fields"
"""The type of pydantic's error that carries a `_Told`."""


def _twice(names: Iterable[str]) -> str:
    """The first that stands there twice, or nothing."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


class Contract(Strict):
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
        kept = [e for e in errors if not (e["type"] == "too_short" and e["input"])]
        return None, tuple(_problem(e) for e in kept[:20])


def body(contract: Contract) -> dict[str, Any]:
    """The canonical body: fields written out, lengths in integer milliseconds under `_ms` keys, sizes under `_mib`.

    A field that the first release did not know is left out at its default, so that the digest of a
    contract that does not use it never changed.
    """
    plain = contract.model_dump(mode="json")
    spec: dict[str, Any] = {}
    for key, value in plain["spec"].items():
        block = getattr(contract.spec, key)
        written = terms.without_defaults(block) if isinstance(block, Strict) else value
        if key in _FIRST or written not in (None, [], {}, _DEFAULTS[key]):
            spec[key + terms.UNITS.get(key, "")] = written
    spec["checkpoint"]["grace_ms"] = contract.spec.checkpoint.grace
    return {**plain, "spec": spec}


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
        checkpoint_interval_ms=spec.checkpoint.interval or 0,
        cpu_per_host=spec.cpu_per_host or 0,
        memory_per_host_mib=spec.memory_per_host or 0,
        disk_per_host_mib=spec.disk_per_host or 0,
        constraints=_constraints(spec.constraints),
        start_limit_ms=spec.start_limit or 0,
        after=tuple(job.After(job=after.job, when=after.when) for after in spec.after),
        array=None if spec.array is None else job.Array(count=spec.array.count, parallel=spec.array.parallel or 0),
        state_digest=_state_digest(spec.state),
        evaluation=spec.evaluation or "",
    )


def _constraints(asked: terms.Constraints | None) -> job.Constraints | None:
    """What every host must be; None when nothing was asked."""
    if asked is None or asked == terms.Constraints():
        return None
    return job.Constraints(
        gpu_models=asked.gpu_model,
        min_gpu_memory_mib=asked.min_gpu_memory or 0,
        labels=dict(sorted(asked.labels.items())),
        is_same_block=asked.same_block,
    )


def _state_digest(state: terms.State | None) -> str:
    """One digest of all that a resumed run must match; empty when that is nothing."""
    said = terms.without_defaults(state) if state is not None else {}
    return digest(said) if said else ""


def _problem(error: dict[str, Any]) -> Problem:
    """A pydantic error in the words of Problem: path, rule, value (shortened), limit and way out.

    What looks like a secret is named by its kind and never repeated.
    """
    path = ".".join(str(part) for part in error["loc"])
    context = error.get("ctx", {})
    if error["type"] == _BETWEEN_FIELDS:
        found = _Told(**context)
        return Problem(
            field=f"{path}.{found.field}",
            rule=_rule_of(found.field.split(".")),
            value=found.value,
            limit=found.limit,
            way_out=found.way_out,
        )
    bounds = [f"{sign} {told.plain(context[key])}" for key, sign in _BOUNDS.items() if key in context]
    message = told.way_out(error, Contract, _PATTERNS_SAY)
    secret = kind_of(str(error.get("input"))) or kind_of(path)
    return Problem(
        field=(_harmless(path, 200) or "contract") if not kind_of(path) else "spec",
        rule="1.13" if secret else _rule_of(str(part) for part in error["loc"]),
        value=_shown(error.get("input")) if not secret and error["type"] not in ("missing", "value_error") else "",
        limit=", ".join(bounds)[:200],
        way_out=terms.secret_told(secret) if secret else message[:300],
    )


def _rule_of(keys: Iterable[str]) -> str:
    """The rule of the outermost of these keys that has one."""
    return next((_RULES[key] for key in keys if key in _RULES), "1.1-1.17")


_BOUNDS: Final = {"ge": ">=", "le": "<=", "min_length": "at least", "max_length": "at most", "expected": "one of"}
_PATTERNS_SAY: Final = {
    _IMAGE: "write an image as registry/name:tag, better with @sha256: and its digest",
    _REFERENCE: "write the name of a secret, for example secret:wandb-key",
    _ENV_NAME: "write a name of A-Z a-z 0-9 _ that does not begin with a digit",
}
"""What is told instead of a regular expression."""

_FIRST: Final = frozenset(
    (
        *("budget", "hosts", "gpus_per_host", "pools", "min_runtime", "timeout", "on_timeout", "resumable"),
        *("checkpoint", "max_retries", "lane", "env"),
    )
)
"""Fields of the first release, and always in the body."""

_DEFAULTS: Final = {name: field.default for name, field in Spec.model_fields.items()}


def _shown(value: object) -> str:
    """A refused value, short and printable; containers are named by their kind."""
    if isinstance(value, (dict, list, tuple, set)):
        return type(value).__name__
    if isinstance(value, int) and not -(10**18) < value < 10**18:
        return "a huge number"
    return _harmless(str(value), 80)


def _harmless(text: str, limit: int) -> str:
    """What somebody wrote, fit for the log and a terminal: normal form C, no control characters, cut."""
    shown = CONTROL.sub("\N{REPLACEMENT CHARACTER}", unicodedata.normalize("NFC", text)[:limit])
    return shown.encode("utf-8", "replace").decode()
