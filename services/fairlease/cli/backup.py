"""`fairlease backup FILE` and `fairlease restore FILE`: a cell of `fairlease up`, as one file and back.

A backup is made while the cell runs, and started once, on a bus of its own, before it is written: what nobody ever
started is no backup. A restored cell is made beside its place and put there whole, so that a directory is never half a
cell. The surprising part: it is another life of the cell's hosts. Nobody knows there what ran since, so what the
backup has as running begins again (7.7), and is never taken for what may still run of the old cell.
"""

import argparse
import asyncio
import contextlib
import hashlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlease.agent.layout import LIFE, write_whole
from fairlease.cli.exits import FAILED, OK, CommandError
from fairlease.cli.output import Output, output_of, print_data, print_text
from fairlease.cli.up import remembered
from fairlease.runtime import api, backup, bus_server, keys, standstill, tls
from fairlease.runtime.access import access
from fairlease.runtime.backup import CELL_FILE, BadBackup, Manifest
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import EXIT_CONFIG, ConfigWrong, ShellError
from fairlease.runtime.export import export
from fairlease.runtime.permissions import Plan, identities
from fairlease.runtime.settings import Settings, read_settings, url_in
from fairlease.runtime.streams import wanted
from fairlease.runtime.version import version
from fairlease.runtime.whole_file import sync_names

_OPENS_S: Final = 120.0
"""How long a copied store may take to be read: a large one is looked through as after a crash."""
_MIB: Final = 1 << 20

Ends = dict[str, int]
"""The last sequence of streams, by their names."""


def run(args: argparse.Namespace) -> int:
    """0 when it is done; 1, with the reason, when nothing was made; 7 for settings that are wrong."""
    try:
        settings = read_settings()
        return _back_up(args, settings) if args.verb == "backup" else _restore(args, settings)
    except ConfigWrong as error:
        raise CommandError(EXIT_CONFIG, str(error)) from error
    except ShellError as error:
        raise CommandError(FAILED, str(error)) from error
    except OSError as error:
        where = error.filename2 or error.filename or args.file
        way_out = "mend its rights, make room, or name another place"
        if isinstance(error, FileNotFoundError) and args.verb == "restore":
            way_out = "name a file that `fairlease backup` wrote"
        raise CommandError(FAILED, f"{where}: {error.strerror}", way_out=way_out) from error


def _back_up(args: argparse.Namespace, settings: Settings) -> int:
    where, home = Path(args.file), settings.state_dir
    if where.exists():
        raise CommandError(FAILED, f"{where}: it is there already", way_out="name a new file")
    known = _known(settings)
    with _beside(where) as place:
        state = place / "state"
        state.mkdir(mode=0o700)
        still_ms = standstill.copy(home, state / standstill.STORE)
        with contextlib.suppress(FileNotFoundError):  # a cell that never was ready has none
            shutil.copyfile(home / CELL_FILE, state / CELL_FILE)
        position, digest = _proved(place, state, settings, known)
        if args.with_keys:
            _copy_keys(home, state)
        manifest = Manifest(
            form=backup.FORM,
            cell=settings.cell,
            release=version(),
            made_at_ms=time.time_ns() // 1_000_000,
            log_position=position,
            log_sha256=digest,
            has_keys=args.with_keys,
            files=backup.members_of(state),
        )
        size = backup.write(where, manifest, state)
    _say_made(output_of(args), where, manifest, size, still_ms)
    return OK


def _known(settings: Settings) -> Ends:
    """How far the streams go at least: as their bus says, or else as far as a service that was stopped has folded.

    A bus that starts on a damaged stream leaves out what it cannot read, and says nothing [measured].
    """
    home = settings.state_dir
    if standstill.is_running(home):
        return asyncio.run(_ends(msgspec.structs.replace(settings, url=url_in(home), creds=""), _accounts(home)))
    folded = [int(fold.stem) for fold in (home / settings.cell).glob("*/*.fold") if fold.stem.isdigit()]
    return {settings.subjects.log_stream: max(folded, default=0)}


def _accounts(home: Path) -> tuple[str, ...]:
    return remembered(home).accounts


async def _ends(settings: Settings, accounts: tuple[str, ...]) -> Ends:
    """The last sequence of every stream that is there, by the key of the audit."""
    key = keys.find(settings, keys.AUDIT)
    client = await connect(settings, "fairlease-backup", key=key, exit_on_close=False)
    found = {}
    try:
        for name in wanted(settings.subjects, accounts):
            with contextlib.suppress(api.Refused):  # a bus of an earlier release lacks some
                found[name] = int((await api.request(client, f"STREAM.INFO.{name}"))["state"]["last_seq"])
    finally:
        await client.close()
    return found


def _proved(place: Path, state: Path, settings: Settings, known: Ends) -> tuple[int, str]:
    """Position and SHA-256 of the last record (0 and nothing for none) of a copied cell: it starts, and is read whole.

    CannotCopy when it does not, or a stream ends before what is `known` of it. Its keys are drawn for this and thrown
    away, so that nobody else has the cell's own.
    """
    accounts = _accounts(state)
    home = place / "tried"
    home.mkdir(mode=0o700)
    (state / standstill.STORE).rename(home / standstill.STORE)
    people = access(home, settings.subjects, identities(Plan(cell=settings.cell, accounts=accounts)))
    own = settings.own_server
    try:
        server = bus_server.start(home, access=people, dies_with_parent=True, limit_s=_OPENS_S, own_server=own)
        try:
            asked = Settings(state_dir=home, url=server.url, cell=settings.cell)
            ends = asyncio.run(_ends(asked, accounts))
            found = _end_of_log(place, asked)
        finally:
            server.stop()
    except ShellError as error:
        raise standstill.CannotCopy(f"what was copied does not start, so it is no backup: {error}") from error
    for name, last in known.items():
        if ends.get(name, 0) < last:
            raise standstill.CannotCopy(
                f"stream {name} goes to {last}, and what was copied of it to {ends.get(name, 0)}: it is damaged on "
                "disk; keep the directory as it is, and restore a backup from before"
            )
    (home / standstill.STORE).rename(state / standstill.STORE)
    return found


def _end_of_log(place: Path, asked: Settings) -> tuple[int, str]:
    position, last = 0, b""
    with tempfile.TemporaryFile(dir=place) as log:
        asyncio.run(export(log, "fairlease-backup", settings=asked))
        log.seek(0)
        for line in log:
            position, last = position + 1, line
    return position, hashlib.sha256(last.rstrip(b"\n")).hexdigest() if position else ""


def _copy_keys(home: Path, state: Path) -> None:
    (state / keys.KEYS).mkdir(mode=0o700)
    for path in sorted((home / keys.KEYS).glob("*.key")):
        shutil.copyfile(path, state / keys.KEYS / path.name)
    sealed = tls.certificates_of(home)
    for name in tls.FILES:
        if (sealed / name).is_file():
            (state / tls.TLS).mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(sealed / name, state / tls.TLS / name)


def _say_made(output: Output, where: Path, manifest: Manifest, size: int, still_ms: int) -> None:
    facts = {**_facts(where, manifest), "bytes": size, "still_ms": still_ms}
    if output.is_data or output.form == "name":
        _print_view(output, "Backup", where, facts)
        return
    own = (
        "the keys and certificates of the cell are in it: who can read it is everybody in this cell"
        if manifest.has_keys
        else "no keys are in it: a cell restored from it makes others (--with-keys takes these along)"
    )
    still = f"; the bus stood still for {still_ms} ms" if still_ms else ""
    print_text(f"{where}: {_told(manifest)}, {size / _MIB:.1f} MiB{still}\n")
    if not output.is_quiet:
        print_text(f"contracts and code of jobs are in it, so keep it to yourself; {own}\n")


def _restore(args: argparse.Namespace, settings: Settings) -> int:
    where, home = Path(args.file), settings.state_dir.resolve()
    _refuse_used(home)
    manifest = backup.judge(where)
    if manifest.cell != settings.cell:
        text = f"{where} is of cell {manifest.cell}, and FAIRLEASE_CELL is {settings.cell}"
        raise CommandError(FAILED, text, way_out=f"set FAIRLEASE_CELL={manifest.cell}, here and for `fairlease up`")
    if not args.dry_run:
        home.parent.mkdir(parents=True, exist_ok=True)
    with _beside(home) if not args.dry_run else _anywhere() as place:
        state = place / "state"
        if backup.restore(where, state) != manifest:
            raise BadBackup(f"{where}: it changed while it was read; restore a file that nobody writes")
        _check_log(where, manifest, _proved(place, state, settings, {}))
        if not args.dry_run:
            (state / "agent").mkdir(mode=0o700)
            write_whole(str(state / "agent" / LIFE), secrets.token_hex(16).encode(), is_durable=True)
            _put(state, home)
    output = output_of(args)
    if output.is_data or output.form == "name":
        _print_view(output, "Restored", where, {**_facts(where, manifest), "home": str(home), "dry_run": args.dry_run})
    elif args.dry_run:
        print_text(f"{where}: {_told(manifest)}; whole, and could be restored into {home}\n")
    else:
        print_text(f"{home}: {_told(manifest)}\n")
        if not output.is_quiet:
            print_text("nothing of the old cell may run any more; then `fairlease up` starts this one\n")
    return OK


def _check_log(where: Path, manifest: Manifest, found: tuple[int, str]) -> None:
    """BadBackup where the log does not end as the manifest says: what is told of it would be anybody's word."""
    if found != (manifest.log_position, manifest.log_sha256):
        raise BadBackup(
            f"{where}: its log ends at position {found[0]} with a record of SHA-256 {found[1] or 'none'}, and its "
            f"manifest says {manifest.log_position} and {manifest.log_sha256 or 'none'}; take another backup"
        )


def _refuse_used(home: Path) -> None:
    """A directory in which anything is may be a cell, or something else that somebody wants to keep."""
    try:
        used = next(home.iterdir(), None)
    except FileNotFoundError:
        return
    if used is not None:
        way_out = "move it away, or set FAIRLEASE_HOME to a directory that is empty or not there yet"
        raise CommandError(FAILED, f"{home} is not empty: {used.name} is in it", way_out=way_out)


def _put(state: Path, home: Path) -> None:
    """Gives the whole cell its name at once; an empty directory makes way for it."""
    mode = home.stat().st_mode if home.is_dir() else 0o700
    state.chmod(mode & 0o777)
    try:
        state.rename(home)
    except OSError as error:
        way_out = "set FAIRLEASE_HOME to a directory below it, for a whole cell is put in its place at once"
        raise CommandError(FAILED, f"{home}: cannot be replaced ({error.strerror})", way_out=way_out) from error
    sync_names(home.parent)


@contextlib.contextmanager
def _beside(where: Path) -> Iterator[Path]:
    """A directory of our own beside a file, on its disk; gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix=f".{where.name}.", dir=where.parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _anywhere() -> Iterator[Path]:
    """The same where there is room for what is only tried."""
    with tempfile.TemporaryDirectory(prefix="fairlease-restore-") as place:
        yield Path(place)


def _facts(where: Path, manifest: Manifest) -> dict[str, Any]:
    """A backup as data, but for what is in each of its files."""
    facts = msgspec.to_builtins(manifest)
    return {**facts, "file": str(where), "files": len(manifest.files)}


def _told(manifest: Manifest) -> str:
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(manifest.made_at_ms // 1_000))
    log = f"log to position 1-{manifest.log_position}" if manifest.log_position else "an empty log"
    return f"cell {manifest.cell}, {log}, made {made} UTC"


def _print_view(output: Output, kind: str, where: Path, facts: dict[str, Any]) -> None:
    view = {"apiVersion": "fairlease/v1", "kind": kind, **facts}
    print_data(output.form, msgspec.json.encode(view), [str(where)])
