"""`fairlease up`: a whole cell on this machine, until Ctrl-C; stop and start again and everything goes on.

What was asked for at the first start (hosts to simulate, accounts) is kept in the state directory,
so that a plain `fairlease up` brings the same cell back.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from fairlease.cli.exits import CommandError
from fairlease.runtime.errors import EXIT_CONFIG, BusAway, ConfigWrong
from fairlease.runtime.settings import DEFAULT_ACCOUNTS, read_settings
from fairlease.runtime.supervisor import Part, Supervisor, agent_part, service_parts
from fairlease.runtime.telemetry import configure

CELL_FILE: Final = "cell.json"
EXIT_NOT_READY: Final = 69


class Wanted(msgspec.Struct, frozen=True):
    """What a cell is made of: accounts with an inbox, and hosts to simulate, as `4x8` (empty: none)."""

    accounts: tuple[str, ...] = DEFAULT_ACCOUNTS
    simulate: str = ""


def run(args: argparse.Namespace) -> int:
    """0 after an orderly end; errors say which part, and where it wrote what it had to say."""
    settings = read_settings("up")
    wanted = remembered(settings.state_dir)
    accounts = tuple(dict.fromkeys((*wanted.accounts, *args.account)))
    simulate = "x".join(map(str, args.simulate_gpus)) if args.simulate_gpus else wanted.simulate
    _refuse_other_hosts(wanted.simulate, simulate)
    wanted = Wanted(accounts, simulate)
    configure("up")
    settings = msgspec.structs.replace(settings, accounts=accounts, url="")
    try:
        return asyncio.run(_up(Supervisor(settings, _parts(args, wanted)), wanted))
    except (ConfigWrong, BusAway) as error:
        code = EXIT_CONFIG if isinstance(error, ConfigWrong) else EXIT_NOT_READY
        raise CommandError(code, str(error)) from error


def _refuse_other_hosts(before: str, now: str) -> None:
    """A cell may grow by hosts; fewer, or other ones, would leave registered hosts that nobody serves."""
    if not before or not now:
        return
    (hosts, gpus), (more, same) = (map(int, text.split("x")) for text in (before, now))
    if more < hosts or gpus != same:
        raise CommandError(
            EXIT_CONFIG,
            f"--simulate-gpus {now}: this cell has {before}, and work may run on every one of its hosts",
            way_out=f"start it as it was, with more hosts of {gpus} GPUs, or choose another FAIRLEASE_HOME",
        )


def _parts(args: argparse.Namespace, wanted: Wanted) -> list[Part]:
    parts = service_parts(args.replicas)
    if wanted.simulate:
        parts.append(agent_part(wanted.simulate))
    return parts


async def _up(supervisor: Supervisor, wanted: Wanted) -> int:
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, asked_to_end.set)
    started_s = time.monotonic()
    hosts = int(wanted.simulate.partition("x")[0]) if wanted.simulate else 0
    try:
        await supervisor.start()
        keep(supervisor.settings.state_dir, wanted)
        ready = asyncio.create_task(supervisor.wait_ready(hosts=hosts))
        ended = asyncio.create_task(asked_to_end.wait())
        await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            _say(supervisor, wanted, time.monotonic() - started_s)
            await ended
        else:
            ready.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ready
    finally:
        await supervisor.stop()
    print("stopped; running jobs go on, and `fairlease up` finds them again", file=sys.stderr)
    return 0


def _say(supervisor: Supervisor, wanted: Wanted, took_s: float) -> None:
    """What is there now, and what to type next."""
    lines = [
        f"ready in {took_s:.1f} s: cell {supervisor.settings.cell}, bus {supervisor.url}",
        f"  accounts  {', '.join(wanted.accounts)}",
        f"  devices   {wanted.simulate} GPUs, SIMULATED: jobs are real processes, the GPUs are not"
        if wanted.simulate
        else "  devices   none: add some with `fairlease up --simulate-gpus 4x8`",
        f"  logs      {supervisor.logs}",
        "next, in another terminal:",
        "  fairlease budget set team-a --weight 1",
        "  fairlease submit --budget team-a --min-runtime 15m --timeout 1h --wait -- echo hello",
    ]
    print("\n".join(lines), flush=True)


def remembered(home: Path) -> Wanted:
    """What the last `up` in this directory was asked for."""
    try:
        return msgspec.json.decode((home / CELL_FILE).read_bytes(), type=Wanted)
    except FileNotFoundError:
        return Wanted()
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandError(EXIT_CONFIG, f"{home / CELL_FILE}: {error}", way_out="delete the file") from error


def keep(home: Path, wanted: Wanted) -> None:
    """Remember it for the next start."""
    fresh = home / (CELL_FILE + ".new")
    fresh.write_text(json.dumps(msgspec.to_builtins(wanted)) + "\n", encoding="utf-8")
    fresh.replace(home / CELL_FILE)
