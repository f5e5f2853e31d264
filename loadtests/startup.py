"""From `fairlease up` to ready, and what the idle cell holds in memory."""

import asyncio
from pathlib import Path

from figure import Figure
from live import Live

SETTLE_S = 2.0


async def startup(live: Live) -> list[Figure]:
    """Seconds to ready, and proportional set sizes of all processes without jobs: `up`, bus, services, agent."""
    await asyncio.sleep(SETTLE_S)  # what was read at the start has been let go by then
    pss_mib = {name: round(pss_kib(pid) / 1024, 1) for name, pid in live.pids().items()}
    return [
        Figure("up_to_ready_s", round(live.up_s, 2), "s"),
        Figure("pss_all_mib", round(sum(pss_mib.values()), 1), "MiB", {"by_process": pss_mib}),
        Figure("pss_agent_mib", pss_mib["agent"], "MiB"),
    ]


def pss_kib(pid: int) -> int:
    """The proportional set size of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0
