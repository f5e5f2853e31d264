"""`fairlease bus write`, `declare` and `serve`: the bus of a cell that something else than `up` keeps running."""

import argparse
import asyncio
import os
from pathlib import Path

import msgspec

from fairlease.cli.exits import AWAY, CommandError
from fairlease.cli.output import refused
from fairlease.runtime import api, bus_server, deployment, keys, streams
from fairlease.runtime.connection import connect
from fairlease.runtime.deployment import Deployment
from fairlease.runtime.errors import EXIT_CONFIG, BusAway, ConfigWrong
from fairlease.runtime.settings import OWN_SERVER, Settings, read_settings


def run(args: argparse.Namespace) -> int:
    """0 when it is done; 7 for a file or a stream that is not as it must be, 69 when the bus does not answer."""
    try:
        if args.action == "serve":
            return _serve(args.conf)
        cell = deployment.read(args.file)
        return _write(cell, args.out) if args.action == "write" else _declare(cell, args.wait_ms)
    except ConfigWrong as error:
        raise CommandError(EXIT_CONFIG, str(error)) from error
    except OSError as error:
        way_out = "mend its rights or name another directory with --out"
        raise CommandError(EXIT_CONFIG, refused(error), way_out=way_out) from error


def _serve(conf: Path) -> int:
    """Does not return: this process becomes the server, so that whoever keeps it keeps that one."""
    own = read_settings().own_server
    program = bus_server.program(own)
    if not conf.is_file():
        raise ConfigWrong(f"{conf}: is no file; write it with `fairlease bus write`")
    if not deployment.has_accounts(conf.read_text(encoding="utf-8", errors="replace")):
        raise ConfigWrong(
            f"{conf}: leaves out the accounts, so that everybody could do everything; was it copied to its end? "
            "Write it with `fairlease bus write`"
        )
    try:
        os.execv(program, [str(program), "-c", str(conf)])  # noqa: S606 - the program is checked, no shell reads it
    except OSError as error:
        way_out = f"install Fairlease for this machine anew, or name another in {OWN_SERVER}"
        raise ConfigWrong(f"{program}: cannot be started ({error.strerror}); {way_out}") from error


def _write(cell: Deployment, out: Path) -> int:
    for path in deployment.write(cell, out):
        print(path)
    print(f"keys in {out / keys.KEYS}: give each process its own file alone (FAIRLEASE_CREDS)")
    print(f"FAIRLEASE_URL={cell.url}")
    return 0


def _declare(cell: Deployment, wait_ms: int) -> int:
    settings = read_settings("up")
    # The file says which bus is meant: one that `up` keeps here is another cell's.
    url = os.environ.get("FAIRLEASE_URL", "").strip() or cell.url
    settings = msgspec.structs.replace(settings, url=url)
    made = asyncio.run(_declared(cell, settings, wait_ms / 1_000))
    print("\n".join(f"made {name}" for name in made) or "every stream is there, and as it must be")
    return 0


async def _declared(cell: Deployment, settings: Settings, wait_s: float) -> list[str]:
    """The streams that were made. Servers that have just started agree on a leader first: asked until they have."""
    key = keys.find(settings, keys.DEPLOYER)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    made: list[str] = []
    while True:
        try:
            client = await connect(settings, "fairlease-declare", key=key, exit_on_close=False)
            try:
                made += await streams.declare(client, cell.subjects, cell.plan.accounts, replicas=cell.replicas)
                return made
            finally:
                await client.close()
        except (BusAway, api.Refused) as away:
            if isinstance(away, api.Refused) and away.code != api.NO_PEERS:
                raise CommandError(EXIT_CONFIG, str(away), way_out="what its servers log says more") from away
            if loop.time() > until_s:
                raise CommandError(AWAY, str(away), way_out="start the servers of the bus, and ask again") from away
            await asyncio.sleep(0.2)
