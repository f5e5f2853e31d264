"""A maintenance bot: empties every host of a cell in turn, does its work there, and gives it back.

    python examples/service_hosts.py [HOST ...] [--work "command {host}"] [--check "NAME=command {host}"]

It speaks through the command line alone, as any bot could: `host drain` says by when the host will be
empty, `hosts -o json` whether it is, `host return` gives it back, with checks made after the work: a command
that ends with 0 ok, 1 warning, 2 critical or 3 unknown, as those of Nagios do. A host that is not well stays
out, and the bot ends there with an error: the next one would be taken from the cell as well. No person
is asked, and no window of a running job is broken, because no deadline is given.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from typing import Any

LOOK_S = 0.5
UNKNOWN = 3
NOT_RUN = 127


def fairlease(*words: str) -> dict[str, Any]:
    """The answer of one command as JSON; the command's own error ends the bot."""
    command = [sys.executable, "-m", "fairlease", *words, "-o", "json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)  # noqa: S603 - our own command line
    if done.returncode:
        raise SystemExit(f"service_hosts: fairlease {' '.join(words)} ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def drain_of(host: str) -> tuple[dict[str, Any] | None, int]:
    """The host's drain as the cell tells it, and the log time of the answer."""
    view = fairlease("hosts")
    drain = next((row.get("drain") for row in view["rows"] if row["host"] == host), None)
    return drain, view["as_of"]["log_time_ms"]


def made(check: str, host: str) -> str:
    """One check of an empty host, as `host return` takes it; a command that ends with anything else is unknown."""
    name, _, command = check.partition("=")
    code, said = ran(command, host)
    return f"{name}={code if 0 <= code <= UNKNOWN else UNKNOWN}:{said}"


def ran(command: str, host: str) -> tuple[int, str]:
    """How a command for this host ended, 127 where it cannot be run, and the last line it printed."""
    words = [word.replace("{host}", host) for word in shlex.split(command)]
    try:
        done = subprocess.run(  # noqa: S603 - what the operator wrote
            words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return NOT_RUN, f"{words[0]}: {error.strerror}"
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def service(host: str, work: str, checks: list[str]) -> bool:
    """Drain, work, check, return; says how long it took and what was promised. Whether the host is back."""
    answer = fairlease("host", "drain", host, "--reason", "service")
    drain, told_ms = answer["drain"], answer["as_of"]["log_time_ms"]
    began_s = time.monotonic()
    if drain["state"] == "queued":
        print(f"{host}: queued behind {', '.join(drain['behind'])}", flush=True)
    while drain is not None and drain["state"] == "queued":  # it has no time before it begins
        time.sleep(LOOK_S)
        drain, told_ms = drain_of(host)
        began_s = time.monotonic()
    if drain is None:
        raise SystemExit(f"service_hosts: the drain of {host} was called off")
    promised_s = (drain["empty_ms"] - told_ms) / 1_000
    while drain is not None and drain["state"] != "drained":
        time.sleep(LOOK_S)
        drain, _ = drain_of(host)
    if drain is None:
        raise SystemExit(f"service_hosts: the drain of {host} was called off")
    print(f"{host}: empty after {time.monotonic() - began_s:.1f} s, promised within {promised_s:.1f} s", flush=True)
    if work:
        code, said = ran(work, host)
        if code:
            raise SystemExit(f"service_hosts: the work on {host} ended with {code}: {said}; it stays out")
    passed = [word for check in checks for word in ("--check", made(check, host))]
    command = [sys.executable, "-m", "fairlease", "host", "return", host, *passed]
    is_back = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0  # noqa: S603 - as above
    print(f"{host}: {'returned' if is_back else 'stays out'}", flush=True)
    return is_back


def main() -> None:
    """One host after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="these hosts (all of the cell)")
    parser.add_argument("--work", default="", help="a command to run for each empty host, {host} is its name")
    parser.add_argument("--check", action="append", default=[], metavar="NAME=COMMAND", help="a check after the work")
    args = parser.parse_args()
    hosts = args.hosts or [row["host"] for row in fairlease("hosts")["rows"]]
    for number, host in enumerate(hosts):
        if not service(host, args.work, args.check):
            raise SystemExit(f"service_hosts: {host} stays out; {len(hosts) - number - 1} more were not looked at")


if __name__ == "__main__":
    main()
