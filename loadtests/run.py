"""The load test: `python loadtests/run.py PROFILE [--json]`. Each figure beside its limit; 1 when one is missed."""

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(ROOT), str(ROOT / "services"), str(ROOT / "schemas")]

from answer import answer  # noqa: E402 - the sources are found only from here on
from cycle import cycle  # noqa: E402 - as above
from figure import Figure, Limits, machine, missed, report_of, table_of  # noqa: E402 - as above
from floods import floods  # noqa: E402 - as above
from fold import fold  # noqa: E402 - as above
from killed import killed  # noqa: E402 - as above
from live import ACCOUNT, Live, cell, contract  # noqa: E402 - as above
from rules import rules  # noqa: E402 - as above
from runs import runs  # noqa: E402 - as above
from secured import secured  # noqa: E402 - as above
from seeing import seeing  # noqa: E402 - as above
from simulated import simulated  # noqa: E402 - as above
from starting import BUDGET, starting  # noqa: E402 - as above
from startup import startup  # noqa: E402 - as above
from yardstick import yardsticks  # noqa: E402 - as above

from fairlease_schemas.commands import ChangeBudget  # noqa: E402 - as above
from fairlease_schemas.ids import job_id  # noqa: E402 - as above


def main() -> int:
    """0 when every limit of the profile is kept, else 1."""
    logging.getLogger("fairlease").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", help="a file of loadtests/profiles, without .toml")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    args = parser.parse_args()
    profile = tomllib.loads((ROOT / "loadtests/profiles" / f"{args.profile}.toml").read_text(encoding="utf-8"))
    limits = Limits(profile["limits"])
    before, started_s = machine(), time.monotonic()
    load = profile["load"]
    figures = _MEASURED[profile["name"]](load)
    report = report_of(profile["name"], before, figures, limits, time.monotonic() - started_s)
    sys.stdout.write(json.dumps(report, indent=2) + "\n" if args.json else table_of(report))
    return 1 if missed(figures, limits) else 0


async def _secured(load: dict[str, Any]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="fairlease-load-") as name:
        return await secured(Path(name), load["submissions"])


async def _seeing(load: dict[str, Any]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="fairlease-load-") as name:
        return [*yardsticks(Path(name)), *await seeing(Path(name), load)]


async def _floods(load: dict[str, Any]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="fairlease-load-") as name:
        return [*yardsticks(Path(name)), *await floods(Path(name), load)]


async def _runs(load: dict[str, Any]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="fairlease-load-") as name:
        async with cell(Path(name) / "runs", "--simulate-gpus", load["hosts"]) as live:
            return [*yardsticks(Path(name)), *await runs(live, load)]


async def _spine(load: dict[str, Any]) -> list[Figure]:
    """Every figure of the profile, one after another: nothing is measured while something else runs."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="fairlease-load-") as name:
        folder = Path(name)
        figures += yardsticks(folder)
        figures += fold(load["rich_jobs"], load["seed"])
        async with cell(folder / "idle", "--simulate-gpus", load["idle_hosts"]) as live:
            figures += await startup(live)
            figures += await starting(live, load["jobs"], load["hurried_jobs"])
            job, host = await _fill(live, int(load["idle_hosts"].partition("x")[0]))
            figures += await answer(live, job, load["cli_runs"])
            figures += await killed(live, host)
        async with cell(folder / "queue") as live:
            figures += await cycle(live, load["queue_hosts"], load["queued"], load["turns"], load["seed"])
    return figures


async def _fill(live: Live, hosts: int) -> tuple[str, str]:
    """Put one gang on every host and let a job wait behind it: the waiting job, and one of the hosts."""
    await live.command("change-budget", ChangeBudget(budget="load-b", weight=1))
    whole = contract(BUDGET, ["/bin/sleep", "120"], hosts=hosts, gpus_per_host=8)
    await live.command("submit-job", {"request_id": "whole", "contract": whole})
    await live.command(
        "submit-job", {"request_id": "behind", "contract": contract(BUDGET, ["/bin/true"], gpus_per_host=8)}
    )
    gang, behind = (job_id(ACCOUNT, BUDGET, name) for name in ("whole", "behind"))
    await live.until(lambda world: gang in world.jobs and world.jobs[gang].phase == "running", "a gang that runs")
    await live.until(lambda world: behind in world.jobs, "a job behind it")
    return behind, live.world.jobs[gang].attempts[0].hosts[0]


_MEASURED: dict[str, Callable[[dict[str, Any]], list[Figure]]] = {
    "spine": lambda load: asyncio.run(_spine(load)),
    "rules": lambda load: rules(load["turns"], load["seed"]),
    "runs": lambda load: asyncio.run(_runs(load)),
    "floods": lambda load: asyncio.run(_floods(load)),
    "secured": lambda load: asyncio.run(_secured(load)),
    "seeing": lambda load: asyncio.run(_seeing(load)),
    "simulator": simulated,
}
"""How the figures of each profile come about."""


if __name__ == "__main__":
    sys.exit(main())
