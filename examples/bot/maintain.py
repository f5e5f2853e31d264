"""A maintenance bot on the bus: drain a host, hear that it is empty, do the work, give it back with checks.

    python examples/bot/maintain.py HOST ... [--work "command {host}"] [--check "NAME=command {host}"]

It needs nats-py and a client's rights, and nothing of Fairlease. A check is a command that ends with 0 ok, 1 warning,
2 critical or 3 unknown, as those of Nagios do. A host that is not taken back stays out, and the bot says so and ends
with 1. It may be stopped and started at any moment: a drain that is there already is its own.
"""

import argparse
import asyncio
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bus_client import Away, CellClient, messages

LOOK_S = 5.0
UNKNOWN = 3
NOT_STARTED, INTERRUPTED = 127, 130


def host_of(text: str) -> str:
    """The name of a host, as the command line has it."""
    if re.fullmatch("[a-z0-9-]{1,63}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a host")
    return text


def words_of(text: str) -> list[str]:
    """The words of a command: looked at before any host is drained for it."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("there is no command")
    return words


def check_of(text: str) -> tuple[str, list[str]]:
    """The name and the command of a check."""
    name, _, command = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no check: write NAME=COMMAND")
    return name, words_of(command)


async def ran(command: list[str], host: str) -> tuple[int, str]:
    """How a command for this host ended, and the last line it printed; 127 for one that cannot be started."""
    words = [word.replace("{host}", host) for word in command]
    try:
        child = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        return NOT_STARTED, f"{words[0]}: {error.strerror}"
    out, _ = await child.communicate()
    lines = out.decode(errors="replace").strip().splitlines()
    return child.returncode or 0, lines[-1] if lines else ""


async def checked(check: tuple[str, list[str]], host: str) -> dict[str, Any]:
    """One check of an empty host, as `return-host` takes it; what ends with anything else is unknown."""
    name, command = check
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
        return _why(answer)
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


def _why(answer: dict[str, Any]) -> str:
    return "; ".join(f"{one['field']}: {one['way_out']}" for one in answer["problems"])


async def maintain(cell: CellClient, host: str, work: list[str], checks: list[tuple[str, list[str]]]) -> bool:
    """Drain, work, check, return; whether the host is back."""
    if problem := await empty(cell, host):
        print(f"{host}: refused: {problem}", flush=True)
        return False
    print(f"{host}: empty", flush=True)
    code, said = await ran(work, host) if work else (0, "")
    if code:
        print(f"{host}: the work ended with {code}; it stays out: {said}", flush=True)
        return False
    passed = [await checked(check, host) for check in checks]
    answer = await cell.command("return-host", {"host": host, "checks": passed})
    is_back = bool(answer["outcome"] != "refused")
    print(f"{host}: returned" if is_back else f"{host}: stays out: {_why(answer)}", flush=True)
    return is_back


async def main() -> int:
    """One host after another; 0 when all are back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="+", type=host_of, metavar="HOST")
    parser.add_argument(
        "--work", type=words_of, default=[], help="a command to run for each empty host, {host} is its name"
    )
    parser.add_argument(
        "--check", action="append", type=check_of, default=[], metavar="NAME=COMMAND", help="one after the work"
    )
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
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
