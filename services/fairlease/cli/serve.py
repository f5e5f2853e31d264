"""`fairlease serve SERVICE`: one service, or the agent, in the foreground until it is asked to end."""

import argparse
import asyncio
import importlib
import os
from typing import TYPE_CHECKING

from fairlease.cli.exits import USAGE, CommandError
from fairlease.runtime.errors import EXIT_CONFIG, ShellError
from fairlease.runtime.parent import follow
from fairlease.runtime.settings import read_settings

if TYPE_CHECKING:
    from fairlease.agent.devices import Site


def run(args: argparse.Namespace) -> int:
    """The service's own exit code (see docs: 3 bus closed, 5 log damaged, 7 the cell is not as it should be)."""
    follow(os.environ)
    if args.service == "agent":
        return _agent(args)
    app = importlib.import_module(f"fairlease.{args.service}.app")
    serve = importlib.import_module("fairlease.runtime.serve")
    try:
        return int(asyncio.run(serve.serve(read_settings(app.NAME), app.define)))
    except ShellError as error:
        raise CommandError(error.exit_code, str(error)) from error


def site_of(args: argparse.Namespace) -> "Site":
    """What the command line says of the agent's hosts."""
    from fairlease.agent.devices import Site

    if args.host and args.simulate_gpus:
        raise CommandError(USAGE, "--host names one host with real GPUs; simulated ones are host-001, host-002 …")
    return Site(
        host=args.host or "",
        pool=args.pool or "",
        block=args.block or "",
        labels=dict(args.label),
        address=args.address or "",
        users=args.users or "",
    )


def _agent(args: argparse.Namespace) -> int:
    from fairlease.agent.devices import NoGpus

    agent = importlib.import_module("fairlease.agent.main")
    cluster = "x".join(map(str, args.simulate_gpus)) if args.simulate_gpus else ""
    try:
        return int(agent.main(cluster, first_host=args.first_host, site=site_of(args)))
    except NoGpus as none:
        mend = f"{none.mend}; or " if none.mend else ""
        way_out = f"{mend}simulate some: fairlease serve agent --simulate-gpus 4x8"
        raise CommandError(EXIT_CONFIG, str(none), way_out=way_out) from None
