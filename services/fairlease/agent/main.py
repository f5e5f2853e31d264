"""The agent as a process: simulated hosts until SIGTERM; exit codes as every part of the cell has them."""

import asyncio
import logging

from fairlease.agent.devices import simulated
from fairlease.agent.service import serve
from fairlease.runtime import telemetry
from fairlease.runtime.errors import ShellError
from fairlease.runtime.settings import read_settings

log = logging.getLogger("fairlease.agent")


def main(cluster: str, *, first_host: int = 1) -> int:
    """Serve the hosts of a cluster such as `4x8`; 0 after an orderly end, the error's own code otherwise."""
    telemetry.configure("agent")
    try:
        settings = read_settings("agent")
        asyncio.run(serve(settings, simulated(cluster, first_host)))
    except ShellError as error:
        log.error("%s", error)  # noqa: TRY400 - its text is for people; the trace would hide it
        return error.exit_code
    return 0
