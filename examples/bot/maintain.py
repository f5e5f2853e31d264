"""A maintenance bot on the bus: drain a host, hear that it is empty, do the work, give it back with checks.

    python examples/bot/maintain.py HOST ... [--work "command {host}"] [--check "NAME=command {host}"]

It needs nats-py and a client's rights, and nothing of Fairlease. A check is a command that ends with 0 ok, 1 warning,
2 critical or 3 unknown, as those of Nagios do. A host that is not taken back stays out, and the bot says so and ends
with 1. It may be stopped and started at any moment: a drain that is there already is its own.
"""

import argparse
import asyncio
import shlex
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bus_client import Away, CellClient, messages

LOOK_S = 5.0
UNKNOWN = 3


async def ran(command: str, host: str) -> tuple[int, str]:
    """How a command for this host ended, and the last line it printed."""
    words = [word.replace("{host}", host) for word in shlex.split(command)]
    child = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await child.communicate()
    lines = out.decode(errors="replace").strip().splitlines()
    return child.returncode or 0, lines[-1] if lines else ""


async def checked(check: str, host: str) -> dict[str, Any]:
    """One check of an empty host, as `return-host` takes it; what ends with anything else is unknown."""
    name, _, command = check.partition("=")
    code, told = await ran(command, host)
    plain = "".join(c if c.isprintable() else "?" for c in told)[:200]
    return {"name": name, "code": code if 0 <= code <= UNKNOWN else UNKNOWN, "at_ms": _now_ms(), "output": plain}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def empty(cell: CellClient, host: str) -> str:
    """Drain the host and wait until nothing is left there; what was refused, or nothing."""
    heard = await cell.follow(f"_hosts.{host}.*")
    answer = await cell.command("request-drain", {"host": host, "reason": "maintenance", "external_id": f"bot/{host}"})
    if answer["outcome"] == "refused":
        return "; ".join(f"{one['field']}: {one['way_out']}" for one in answer["problems"])
    drain = answer.get("drain")
    print(f"{host}: drain {drain['state'] if drain else 'asked for'}", flush=True)
    async for news in messages(heard, LOOK_S):
        if drain is not None and drain["state"] == "drained":
            break
        if news is None:
            rows = ((await cell.ask("hosts", {})) or {}).get("rows", ())
            drain = next((row.get("drain") for row in rows if row["host"] == host), drain)
        else:
            drain = news.get("drain") or drain
    await heard.unsubscribe()
    return ""


async def maintain(cell: CellClient, host: str, work: str, checks: list[str]) -> bool:
    """Drain, work, check, return; whether the host is back."""
    if problem := await empty(cell, host):
        print(f"{host}: refused: {problem}", flush=True)
        return False
    print(f"{host}: empty", flush=True)
    if work and (code := (await ran(work, host))[0]):
        print(f"{host}: the work ended with {code}; it stays out", flush=True)
        return False
    passed = [await checked(check, host) for check in checks]
    answer = await cell.command("return-host", {"host": host, "checks": passed})
    is_back = bool(answer["outcome"] != "refused")
    print(f"{host}: {'returned' if is_back else 'stays out'}", flush=True)
    return is_back


async def main() -> int:
    """One host after another; 0 when all are back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="+", metavar="HOST")
    parser.add_argument("--work", default="", help="a command to run for each empty host, {host} is its name")
    parser.add_argument("--check", action="append", default=[], metavar="NAME=COMMAND", help="a check after the work")
    args = parser.parse_args()
    cell = CellClient.of_environment()
    try:
        await cell.open()
        return int(not all([await maintain(cell, host, args.work, args.check) for host in args.hosts]))
    except Away as away:
        print(f"maintain: {away}", flush=True)
        return away.code
    finally:
        await cell.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
