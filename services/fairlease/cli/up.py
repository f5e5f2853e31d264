"""`fairlease up`: a whole cell on this machine, until Ctrl-C; stop and start again and everything goes on.

Without hosts to simulate, the GPUs of this machine are served; where there are none, `up` says so and
goes on without. What was asked for at the first start (hosts to simulate, what is said of them, accounts, TLS)
is kept in the state directory, so that a plain `fairlease up` brings the same cell back.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from fairlease.agent.devices import NoGpus, Site, measure, simulated
from fairlease.cli.exits import CommandError
from fairlease.cli.output import refused
from fairlease.cli.serve import site_of
from fairlease.runtime import keys, plain_file, tls
from fairlease.runtime.backup import CELL_FILE
from fairlease.runtime.errors import EXIT_CONFIG, BusAway, ConfigWrong
from fairlease.runtime.plain_file import why
from fairlease.runtime.settings import DEFAULT_ACCOUNTS, Settings, read_settings
from fairlease.runtime.supervisor import Part, Supervisor, agent_part, service_parts
from fairlease.runtime.tasks import end
from fairlease.runtime.telemetry import configure
from fairlease.runtime.whole_file import replace
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.ids import is_name

EXIT_NOT_READY: Final = 69


class Wanted(msgspec.Struct, frozen=True):
    """What a cell is made of: accounts with an inbox, and hosts to simulate, as `4x8` (empty: none).

    `site` is what was said of its hosts, `agents` those that are started elsewhere, with theirs. `bots` are the
    accounts that only look after hosts, `posts` the hosts of those that may not look after any, `auditors` those who
    read the log. `tls`: the bus speaks nothing else.
    """

    accounts: tuple[str, ...] = DEFAULT_ACCOUNTS
    simulate: str = ""
    site: Site = Site()
    agents: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bots: tuple[str, ...] = ()
    auditors: tuple[str, ...] = ()
    posts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tls: bool = False


class Served(msgspec.Struct, frozen=True):
    """What this cell's own agent serves: how many hosts, a line about them, and what is said of them."""

    hosts: int
    line: str
    site: Site


def run(args: argparse.Namespace) -> int:
    """0 after an orderly end; errors say which part, and where it wrote what it had to say."""
    try:
        return _run(args)
    except (ConfigWrong, BusAway) as error:
        code = EXIT_CONFIG if isinstance(error, ConfigWrong) else EXIT_NOT_READY
        raise CommandError(code, str(error)) from error
    except OSError as error:
        way_out = "mend its rights, make room there, or choose another FAIRLEASE_HOME"
        raise CommandError(EXIT_CONFIG, refused(error), way_out=way_out) from error


def _run(args: argparse.Namespace) -> int:
    settings = read_settings("up")
    wanted = remembered(settings.state_dir)
    said = dict(args.bot)
    accounts = tuple(dict.fromkeys((*wanted.accounts, *args.account, *said)))
    bots = tuple(name for name in accounts if name in said or (name in wanted.bots and name not in args.account))
    posts = tuple((name, hosts) for name, hosts in {**dict(wanted.posts), **said}.items() if hosts and name in bots)
    auditors = tuple(dict.fromkeys((*wanted.auditors, *args.auditor)))
    simulate = "x".join(map(str, args.simulate_gpus)) if args.simulate_gpus else wanted.simulate
    _refuse_other_hosts(wanted.simulate, simulate)
    configure("up")
    served = _served(simulate, _merged(wanted.site, site_of(args)), settings)
    agents = tuple({**dict(wanted.agents), **dict(args.agent)}.items())
    is_sealed = wanted.tls if args.tls is None else args.tls
    wanted = Wanted(accounts, simulate, served.site, agents, bots, auditors, posts, is_sealed)
    parts = _parts(args, wanted, served)
    _refuse_shared_hosts(parts, agents)
    settings = msgspec.structs.replace(settings, accounts=accounts, url="")
    if served.site.users or settings.users:
        os.umask(0o077)  # users pass through the state directory: what the cell keeps there is none of theirs
    if is_sealed:
        from fairlease.runtime import certificates

        certificates.ensure(settings.state_dir)
    supervisor = Supervisor(
        settings, parts, agents=agents, bots=bots, auditors=auditors, posts=posts, is_sealed=is_sealed
    )
    return asyncio.run(_up(supervisor, wanted, served))


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


def _refuse_shared_hosts(parts: list[Part], agents: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
    """A host has one agent: of two that may speak for it, nobody knows which is right."""
    seen: dict[str, str] = {}
    for agent, hosts in (*((part.name, part.hosts) for part in parts), *agents):
        for host in hosts:
            if host in seen:
                raise CommandError(
                    EXIT_CONFIG,
                    f"--agent {agent}: {host} is a host of {seen[host]}, and a host has one agent",
                    way_out=f"start with hosts of its own; what is remembered stands in {CELL_FILE}",
                )
            seen[host] = agent


def _merged(before: Site, now: Site) -> Site:
    """What was said at an earlier start, under what is said now."""
    return Site(
        host=now.host or before.host,
        pool=now.pool or before.pool,
        block=now.block or before.block,
        labels={**before.labels, **now.labels},
        address=now.address or before.address,
        users=now.users or before.users,
    )


def _served(simulate: str, site: Site, settings: Settings) -> Served:
    """The hosts to simulate, else the GPUs of this machine, else none and why.

    The name of a host with real GPUs is kept, so that work on it is found again under another machine name.
    """
    if simulate:
        line = f"{simulate} GPUs, SIMULATED: jobs are real processes, the GPUs are not"
        return Served(int(simulate.partition("x")[0]), line, site)
    from fairlease.agent.main import told
    from fairlease.agent.nvml import open_gpus

    try:
        gpus = open_gpus(told(site, settings), measure(settings.state_dir))
    except NoGpus as none:
        mend = f" ({none.mend})" if none.mend else ""
        return Served(0, f"none: {none}{mend}; simulate some: `fairlease up --simulate-gpus 4x8`", site)
    gpus.close()
    found = gpus.inventory()
    line = f"{len(found.gpus)} x {found.model}, host {gpus.host} in pool {found.pool}"
    return Served(1, line, msgspec.structs.replace(site, host=gpus.host))


def _parts(args: argparse.Namespace, wanted: Wanted, served: Served) -> list[Part]:
    parts = service_parts(args.replicas)
    if served.hosts:
        real = Part(name="agent", arguments=("serve", "agent"), hosts=(served.site.host,))
        agent = agent_part(wanted.simulate) if wanted.simulate else real
        words = _words(served.site, is_real=not wanted.simulate)
        parts.append(msgspec.structs.replace(agent, arguments=(*agent.arguments, *words)))
    return parts


def _words(site: Site, *, is_real: bool) -> list[str]:
    """The options by which an agent is told what is said of its hosts."""
    said = {
        "--pool": site.pool,
        "--block": site.block,
        "--host": site.host if is_real else "",
        "--address": site.address,
        "--users": site.users,
    }
    words = [f"{option}={value}" for option, value in said.items() if value]
    return words + [f"--label={key}={value}" for key, value in site.labels.items()]


async def _up(supervisor: Supervisor, wanted: Wanted, served: Served) -> int:
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if sign != signal.SIGHUP or signal.getsignal(sign) != signal.SIG_IGN:  # `nohup` means that it shall go on
            loop.add_signal_handler(sign, asked_to_end.set)
    started_s = time.monotonic()
    try:
        await supervisor.start()
        keep(supervisor.settings.state_dir, wanted)
        ready = asyncio.create_task(supervisor.wait_ready(hosts=served.hosts))
        ended = asyncio.create_task(asked_to_end.wait())
        await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            _say(supervisor, wanted, served, time.monotonic() - started_s)
            await ended
        else:
            await end((ready,))
    finally:
        await supervisor.stop()
    with contextlib.suppress(OSError):  # the terminal may be gone
        print("stopped; running jobs go on, and `fairlease up` finds them again", file=sys.stderr)
    return 0


def _say(supervisor: Supervisor, wanted: Wanted, served: Served, took_s: float) -> None:
    """What is there now, and what to type next."""
    lines = [
        f"ready in {took_s:.1f} s: cell {supervisor.settings.cell}, bus {supervisor.url}",
        f"  accounts  {', '.join(f'{name} (bot)' if name in wanted.bots else name for name in wanted.accounts)}",
        *(
            f"  agent     {name} of {', '.join(hosts)}, key {_key_of(supervisor, keys.agent_name(name))}"
            for name, hosts in wanted.agents
        ),
        *(f"  auditor   {name}, key {_key_of(supervisor, keys.auditor_name(name))}" for name in wanted.auditors),
        *(
            [f"  authority {_authority_of(supervisor)}, by which others know the bus (FAIRLEASE_CA)"]
            if wanted.tls
            else []
        ),
        f"  devices   {served.line}",
        f"  logs      {supervisor.logs}",
        "next, in another terminal:",
        "  fairlease budget set team-a --weight 1",
        "  fairlease submit --budget team-a --min-runtime 15m --timeout 1h --wait -- echo hello",
    ]
    print("\n".join(lines), flush=True)


def _authority_of(supervisor: Supervisor) -> Path | None:
    return tls.authority_of(supervisor.reach)


def _key_of(supervisor: Supervisor, identity: str) -> Path:
    return keys.key_path(supervisor.settings.state_dir, identity)


def remembered(home: Path) -> Wanted:
    """What the last `up` in this directory was asked for."""
    try:
        wanted = understood(plain_file.read(home / CELL_FILE), Wanted)
        _refuse_names(home / CELL_FILE, wanted)
        # A cluster that no agent takes was never served: earlier releases kept it all the same.
        return wanted if is_cluster(wanted.simulate) else msgspec.structs.replace(wanted, simulate="")
    except FileNotFoundError:
        return Wanted()
    except (OSError, Unreadable) as error:
        raise CommandError(EXIT_CONFIG, f"{home / CELL_FILE}: {why(error)}", way_out="delete the file") from error


def _refuse_names(path: Path, wanted: Wanted) -> None:
    """What stands in the file by hand is held to the rules of the command line: the bus would not take it."""
    hosts_of = (*wanted.agents, *wanted.posts)
    names = [
        *wanted.accounts,
        *wanted.bots,
        *wanted.auditors,
        *(name for one, hosts in hosts_of for name in (one, *hosts)),
    ]
    strange = next((name for name in names if not is_name(name)), None)
    problem = "accounts: there is none" if not wanted.accounts else ""
    problem = f"{strange[:80]!r} is not a name" if strange is not None else problem
    if problem:
        raise CommandError(EXIT_CONFIG, f"{path}: {problem}", way_out="mend it, or delete the file")


def is_cluster(text: str) -> bool:
    """Whether an agent takes these hosts to simulate; empty is none."""
    try:
        return not text or bool(simulated(text))
    except ValueError:
        return False


def keep(home: Path, wanted: Wanted) -> None:
    """Remember it for the next start."""
    replace(home / CELL_FILE, json.dumps(msgspec.to_builtins(wanted)) + "\n")
