"""The agent as a process: the GPUs of this machine, or simulated hosts, until SIGTERM.

Exit codes are those that every part of the cell has. NoGpus passes through, because whoever started
the agent knows better what to do on a machine without any.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence

import msgspec

from fairlease.agent.devices import Devices, Site, measure, simulated
from fairlease.agent.identity import open_users
from fairlease.agent.machine import alone
from fairlease.agent.nvml import open_gpus
from fairlease.agent.rendezvous import LOOPBACK, own_address
from fairlease.agent.service import serve
from fairlease.runtime import telemetry
from fairlease.runtime.errors import ShellError
from fairlease.runtime.settings import Settings, read_settings
from fairlease.runtime.spans import spans_of

log = logging.getLogger("fairlease.agent")


def main(cluster: str = "", *, first_host: int = 1, site: Site | None = None) -> int:
    """Serve this machine's GPUs, or the hosts of a cluster such as `4x8`; NoGpus where there are none.

    0 after an orderly end, the error's own code otherwise. `site` goes before what the settings say.
    """
    telemetry.configure("agent")
    try:
        settings = read_settings("agent")
        site = told(site or Site(), settings)
        address = site.address or (LOOPBACK if cluster else "")  # simulated hosts are all on this machine
        with _opened(settings, cluster, first_host, site) as hosts:
            users, url = open_users(site.users, settings.state_dir), settings.bus_url()
            spans = spans_of(settings, "agent", is_light=True)
            asyncio.run(serve(settings, hosts, address=lambda: own_address(address, url), users=users, spans=spans))
            spans.close()
    except ShellError as error:
        log.error("%s", error)  # noqa: TRY400 - its text is for people; the trace would hide it
        return error.exit_code
    return 0


def told(site: Site, settings: Settings) -> Site:
    """What is told of this host: the command line goes before the settings, label by label."""
    return msgspec.structs.replace(
        site,
        pool=site.pool or settings.pool,
        labels={**dict(settings.labels), **site.labels},
        address=site.address or settings.host_address,
        users=site.users or settings.users,
    )


@contextlib.contextmanager
def _opened(settings: Settings, cluster: str, first_host: int, site: Site) -> Iterator[Sequence[Devices]]:
    machine = measure(settings.state_dir)
    if cluster:
        yield simulated(cluster, first_host, site, machine.disk_mib)
        return
    gpus = open_gpus(site, machine)
    try:
        with alone(settings.cell, gpus.host):
            yield (gpus,)
    finally:
        gpus.close()
