"""`fairlease serve SERVICE`: one service, or the agent, in the foreground until it is asked to end."""

import argparse
import asyncio
import importlib
import os

from fairlease.cli.exits import USAGE, CommandError
from fairlease.runtime.errors import ShellError
from fairlease.runtime.parent import follow
from fairlease.runtime.settings import read_settings


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


def _agent(args: argparse.Namespace) -> int:
    if args.simulate_gpus is None:
        raise CommandError(
            USAGE,
            "this release drives simulated devices only",
            way_out="name them: fairlease serve agent --simulate-gpus 4x8",
        )
    agent = importlib.import_module("fairlease.agent.main")
    hosts, gpus = args.simulate_gpus
    return int(agent.main(f"{hosts}x{gpus}", first_host=args.first_host))
