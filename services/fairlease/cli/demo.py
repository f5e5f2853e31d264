"""`fairlease demo`: a cell of its own, a few jobs of two projects, why one waits, and the log re-decided.

Everything shown is typed into the real command line as a person would, against real processes; only
the GPUs are simulated. The cell lives in a temporary directory and is gone afterwards.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from fairlease.cli.exits import CommandError
from fairlease.runtime.errors import ShellError
from fairlease.runtime.settings import DEFAULT_ACCOUNTS, Settings
from fairlease.runtime.supervisor import Supervisor, agent_part, service_parts

HOSTS, GPUS = 2, 8
_LIMIT_S: Final = 60.0
_TERMS: Final = ("--min-runtime", "15m", "--timeout", "1h", "--grace", "2s")


class Failed(CommandError):
    """Something that the demo promises to show did not happen."""

    def __init__(self, text: str) -> None:
        super().__init__(1, f"demo: {text}", way_out="run it again with FAIRLEASE_HOME kept, or file an issue")


class Demo:
    """One demo: the cell's environment, whether to be quiet, and what was seen."""

    def __init__(self, home: Path, *, is_quiet: bool) -> None:
        self._env = {**os.environ, "FAIRLEASE_HOME": str(home), "NO_COLOR": "1"}
        for variable in ("FAIRLEASE_URL", "FAIRLEASE_CELL", "FAIRLEASE_ACCOUNT"):
            self._env.pop(variable, None)
        self._is_quiet = is_quiet
        self.seen: dict[str, Any] = {}

    def say(self, text: str) -> None:
        if not self._is_quiet:
            print(text, flush=True)

    async def type(self, *words: str, is_shown: bool = True) -> tuple[int, str]:
        """Type a command; its exit code and what it printed."""
        if is_shown:
            self.say("\n$ fairlease " + " ".join(f"'{w}'" if " " in w else w for w in words))
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "fairlease", *words],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        if is_shown:
            self.say((done.stderr + done.stdout).rstrip())
        return done.returncode, done.stdout

    async def ask(self, *words: str) -> Any:  # noqa: ANN401 - the JSON of any view
        """The JSON answer to a question, without showing it."""
        code, out = await self.type(*words, "--json", is_shown=False)
        if code != 0:
            raise Failed(f"`fairlease {' '.join(words)}` ended with {code}: {out.strip()[:200]}")
        return json.loads(out)

    async def submit(self, *words: str) -> str:
        """Submit a job and show it; its id."""
        code, out = await self.type("submit", *words)
        if code != 0:
            raise Failed(f"a submission ended with {code}")
        return out.split()[0]

    async def until(self, job: str, *states: str) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        until_s = time.monotonic() + _LIMIT_S
        while time.monotonic() < until_s:
            view: dict[str, Any] = await self.ask("job", "show", job)
            if view["state"] in states:
                return view
            await asyncio.sleep(0.1)
        raise Failed(f"{job} did not become {' or '.join(states)} in {_LIMIT_S:g} s")


def run(args: argparse.Namespace) -> int:
    """0 when everything the demo shows was seen to happen; 1 otherwise, saying what did not."""
    home = Path(tempfile.mkdtemp(prefix="fairlease-demo-"))
    is_quiet = args.output != "table"
    demo = Demo(home, is_quiet=is_quiet)
    started_s = time.monotonic()
    try:
        asyncio.run(_in_a_cell(demo, home))
    except ShellError as error:
        raise Failed(str(error)) from error
    finally:
        shutil.rmtree(home, ignore_errors=True)
    wall_s = round(time.monotonic() - started_s, 1)
    if is_quiet:
        print(json.dumps({"kind": "DemoReport", **demo.seen, "wall_s": wall_s}))
    demo.say(f"\nAll of it held, in {wall_s} s.")
    return 0


async def _in_a_cell(demo: Demo, home: Path) -> None:
    demo.say(f"A cell of {HOSTS} hosts x {GPUS} GPUs on this machine. The GPUs are SIMULATED; the processes are real.")
    settings = Settings(state_dir=home, accounts=DEFAULT_ACCOUNTS)
    supervisor = Supervisor(settings, [*service_parts(), agent_part(f"{HOSTS}x{GPUS}")])
    try:
        await supervisor.start()
        await supervisor.wait_ready(hosts=HOSTS)
        demo.say(f"Bus, seven services and an agent are ready at {supervisor.url}.")
        await _tell(demo)
    finally:
        await supervisor.stop()


async def _tell(demo: Demo) -> None:
    """The story: idle work, a gang that needs its GPUs, a debug job, why one waits, and the proof."""
    demo.say("\n-- Two projects share the cell 3 : 1.")
    await demo.type("budget", "set", "vision", "--weight", "3")
    await demo.type("budget", "set", "speech", "--weight", "1")
    demo.say("\n-- Idle work fills the cell: it costs no budget, and leaves when budgeted work needs the room.")
    idle = [
        await demo.submit(
            *("--budget", "speech", "--gpus", "8", "--min-runtime", "0s", "--timeout", "1h", "--grace", "2s"),
            *("--", "sh", "-c", f"echo sweep {number}; exec sleep 600"),
        )
        for number in (1, 2)
    ]
    for job in idle:
        await demo.until(job, "running")
    demo.say("\n-- A gang of two whole hosts gets them: idle work is asked to leave, and waits again.")
    gang = await demo.submit(
        *("--budget", "vision", "--hosts", "2", "--gpus", "8", *_TERMS),
        *("--", "sh", "-c", "echo rank $FAIRLEASE_RANK of $FAIRLEASE_WORLD_SIZE; exec sleep 4"),
    )
    await demo.until(gang, "running", "succeeded")
    evicted = [await demo.ask("job", "show", job) for job in idle]
    demo.seen["preempted"] = sum(a["end"] == "preempted" for view in evicted for a in view["attempts"])
    if demo.seen["preempted"] != len(idle):
        raise Failed("the idle jobs were not preempted for the gang")
    waiting = await demo.submit("--budget", "speech", "--gpus", "8", *_TERMS, "--", "sh", "-c", "echo trained")
    await demo.type("queue")
    demo.say("\n-- Why does that one wait?")
    await demo.type("why", waiting)
    demo.seen["why"] = await demo.ask("why", waiting)
    if not demo.seen["why"]["reasons"]:
        raise Failed("a waiting job has no reason on record")
    for job in (gang, waiting):
        await demo.until(job, "succeeded")
    code, _ = await demo.type("job", "logs", gang)
    if code != 0:
        raise Failed("the gang's log cannot be read")
    await demo.type("shares")
    demo.say("\n-- A submission waits for its job and returns the job's own exit code.")
    code, _ = await demo.type("submit", "--budget", "vision", *_TERMS, "--wait", "--", "sh", "-c", "exit 7")
    demo.say(f"(exit code {code})")
    if code != 7:
        raise Failed(f"a job that exits with 7 gave {code}")
    for job in idle:
        await demo.type("job", "cancel", job)
        await demo.until(job, "cancelled")
    demo.say("\n-- Every decision so far, decided again from the log alone:")
    await demo.type("replay", "--live")
    replay = await demo.ask("replay", "--live")
    demo.seen["replay"] = {key: replay[key] for key in ("decisions", "divergences")}
    demo.seen["jobs"] = len(idle) + 3
    if replay["divergences"]:
        raise Failed("today's code decides differently from the log")
