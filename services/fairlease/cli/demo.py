"""`fairlease demo`: a cell of its own, two projects, a window, a promise kept, why, and the log re-decided.

Everything shown is typed into the real command line as a person would, against real processes; only
the GPUs are simulated. The cell lives in a temporary directory, which is gone afterwards, and kept when the
story did not hold. How fast the machine is decides nothing: what stands in the way runs until it is released,
a window is as long as the typing takes here, and what is claimed at the end is read from the log.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlease.cli.exits import TERMINAL, CommandError
from fairlease.runtime import keys
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import ShellError
from fairlease.runtime.settings import DEFAULT_ACCOUNTS, Settings
from fairlease.runtime.supervisor import Supervisor, agent_part, service_parts
from fairlease_schemas.commands import ChangePolicy
from fairlease_schemas.explain import API_VERSION
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.units import MINUTE_MS, SECOND_MS

HOSTS, GPUS = 3, 8
LESSON: Final = Path(__file__).parents[2] / "fairlease_sdk" / "lesson.py"
_LIMIT_S: Final = 60.0
_SHORTEST_WINDOW_S: Final = 6
_LONGEST_WINDOW_S: Final = 40
_TRIES: Final = 3
"""So often a gang with a window is asked for, each time with one twice as long: a machine may become slow meanwhile."""
POLICY: Final = Policy(
    lookback_ms=10 * MINUTE_MS,
    entitlement_floor_ms=MINUTE_MS,
    window_bounds=(WindowBound(up_to_gpus=1 << 30, shortest_ms=SECOND_MS, longest_ms=5 * MINUTE_MS),),
    patience_ms=0,
    stop_margin_ms=10 * SECOND_MS,  # a process that is told to leave is slow to go where the machine is busy
    reservation_slack_ms=10 * SECOND_MS,
    promise_permille=1000,
    rank_period_ms=SECOND_MS,
)


class Failed(CommandError):
    """Something that the demo promises to show did not happen."""

    def __init__(self, text: str) -> None:
        super().__init__(1, f"demo: {text}")


class Demo:
    """One demo: the cell's environment, whether to be quiet, and what was seen."""

    def __init__(self, home: Path, *, is_quiet: bool) -> None:
        self._env = {**os.environ, "FAIRLEASE_HOME": str(home), "NO_COLOR": "1"}
        for variable in ("FAIRLEASE_URL", "FAIRLEASE_CELL", "FAIRLEASE_ACCOUNT", "FAIRLEASE_CREDS"):
            self._env.pop(variable, None)
        self._is_quiet = is_quiet
        self.home = home
        self.seen: dict[str, Any] = {}
        self.slowest_s = 0.0  # of what was typed so far

    def say(self, text: str) -> None:
        if not self._is_quiet:
            print(text, flush=True)

    async def type(self, *words: str, is_shown: bool = True) -> tuple[int, str]:
        """Type a command; its exit code and what it printed."""
        if is_shown:
            self.say("\n$ fairlease " + " ".join(f"'{w}'" if " " in w else w for w in words))
        started_s = time.monotonic()
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "fairlease", *words],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        self.slowest_s = max(self.slowest_s, time.monotonic() - started_s)
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

    async def clear(self) -> None:
        """Cancel what is left, however the story ended, so that no process outlives the demo."""
        left = [row["job"] for row in (await self.ask("queue"))["rows"]]
        for job in left:
            await self.type("job", "cancel", job, is_shown=False)
        for job in left:
            await self.until(job, *TERMINAL)

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
    except (CommandError, ShellError, subprocess.TimeoutExpired) as error:
        failed = Failed(error.text.removeprefix("demo: ") if isinstance(error, CommandError) else str(error))
        failed.way_out = f"its log and what its processes wrote are kept in {home}: file an issue with them"
        raise failed from error
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home, ignore_errors=True)
    wall_s = round(time.monotonic() - started_s, 1)
    if is_quiet:
        print(
            json.dumps({"apiVersion": API_VERSION, "kind": "DemoReport", **demo.seen, "audit": None, "wall_s": wall_s})
        )
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
        await _set_policy(demo, supervisor.reach)
        try:
            await _tell(demo)
        finally:
            await demo.clear()
    finally:
        await supervisor.stop()


async def _set_policy(demo: Demo, settings: Settings) -> None:
    """Put the demo's own policy in force: seconds where a cluster has hours."""
    body = msgspec.to_builtins(ChangePolicy(name="demo", policy=POLICY, reason="seconds instead of hours"))
    del body["type"]
    key = keys.find(settings, keys.client_name("local"))
    client = await connect(settings, "fairlease-demo", key=key, exit_on_close=False)
    try:
        await client.request(settings.subjects.command("local", "change-policy"), msgspec.json.encode(body))
    finally:
        await client.close()
    until_s = time.monotonic() + _LIMIT_S
    while (await demo.ask("policy", "show"))["name"] != "demo":
        if time.monotonic() > until_s:
            raise Failed("the demo's policy was not accepted")
        await asyncio.sleep(0.1)
    demo.say(
        "Its policy is its own: windows of seconds, a lookback of 10 min, no patience, promises on the whole pool."
    )


async def _tell(demo: Demo) -> None:
    """The story: idle work, a debug job, a window, a promise made and kept, why, and the proof."""
    demo.say("\n-- Two projects share the cell 3 : 1.")
    await demo.type("budget", "set", "vision", "--weight", "3")
    await demo.type("budget", "set", "speech", "--weight", "1")
    idle = await _idle_work(demo)
    training = await _training(demo)
    debug = await _debug_job(demo)
    speech = await _promise(demo, idle)
    for job in (debug, speech, idle[-1]):
        await demo.type("job", "cancel", job, is_shown=False)
    await _drain(demo, training)
    await _exit_code(demo)
    breaks = (await demo.ask("metrics"))["preemption"]["window_breaks"]
    demo.seen["window_breaks"] = breaks
    if breaks:
        raise Failed(f"{breaks} windows were broken")
    demo.say("\n-- Every decision so far, decided again from the log alone:")
    await demo.type("replay", "--live")
    replay = await demo.ask("replay", "--live")
    demo.seen["replay"] = {key: replay[key] for key in ("decisions", "divergences")}
    if replay["divergences"]:
        raise Failed("today's code decides differently from the log")


async def _idle_work(demo: Demo) -> list[str]:
    demo.say("\n-- Idle work fills the cell: it costs no budget, and leaves when budgeted work needs the room.")
    terms = ("--budget", "speech", "--gpus", str(GPUS), "--min-runtime", "0s", "--timeout", "1h", "--grace", "1s")
    jobs = [
        await demo.submit(*terms, "--", "sh", "-c", f"echo sweep {number}; exec sleep 600")
        for number in range(1, HOSTS)
    ]
    for job in jobs:
        await demo.until(job, "running")
    return jobs


async def _training(demo: Demo) -> str:
    demo.say("\n-- One of them is a real training run, which saves itself when it is asked to stop.")
    terms = ("--budget", "speech", "--gpus", str(GPUS - 1), "--min-runtime", "0s", "--timeout", "1h", "--grace", "3s")
    saves = ("--checkpoint-uri", "store:demo/lesson", "--checkpoint-signal", "none")
    paths = ("--env", f"PYTHONPATH={os.pathsep.join(path for path in sys.path if path)}")
    job = await demo.submit(*terms, *saves, *paths, "--", sys.executable, str(LESSON))
    await demo.until(job, "running")
    return job


async def _drain(demo: Demo, training: str) -> None:
    """Its host is emptied for service by the time that was said; the training goes on from where it saved itself."""
    attempt = (await demo.until(training, "running"))["attempts"][-1]
    (host,) = attempt["hosts"]
    demo.say(f"\n-- {host} is to be serviced: it is drained, by when is known at once, and no window is broken.")
    drain = (await demo.ask("host", "drain", host, "--reason", "service"))["drain"]
    promised_s = (drain["empty_ms"] - drain["start_ms"]) / 1_000
    demo.say(f"$ fairlease host drain {host} --reason service\n(empty within {promised_s:.1f} s, it is promised)")
    started_s = time.monotonic()
    while (await _row(demo, host))["drain"]["state"] != "drained":
        if time.monotonic() - started_s > _LIMIT_S:
            raise Failed(f"{host} was not emptied")
        await asyncio.sleep(0.05)
    await demo.type("hosts")
    at_ms = await _told_ms(demo, host)
    actual_s = (at_ms["drain-completed"] - at_ms["drain-planned"]) / 1_000
    demo.seen["drain"] = {"promised_s": promised_s, "actual_s": actual_s}
    if actual_s > promised_s:
        raise Failed(f"{host} was empty {actual_s - promised_s:.2f} s later than promised")
    demo.say(f"(it was empty after {actual_s:.1f} s)")
    await demo.type("host", "return", host)
    demo.say("\n-- The training run had saved itself, and goes on from there on another host.")
    until_s = time.monotonic() + _LIMIT_S
    while (await demo.until(training, "running"))["attempts"][-1]["number"] == attempt["number"]:
        if time.monotonic() > until_s:
            raise Failed("the training run was not started again")
        await asyncio.sleep(0.1)
    step = 0
    while not step and time.monotonic() < until_s:
        _, printed = await demo.type("job", "logs", training, is_shown=False)
        step = int((re.findall(r"begins at step (\d+)", printed) or ["0"])[-1])
        await asyncio.sleep(0.1)
    await demo.type("job", "logs", training)
    demo.seen["resumed_from_step"], demo.seen["resumed_ok"] = step, step > 0
    if not step:
        raise Failed("the training run did not go on from its checkpoint")


async def _row(demo: Demo, host: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = (await demo.ask("hosts"))["rows"]
    return next(row for row in rows if row["host"] == host)


async def _told_ms(demo: Demo, host: str) -> dict[str, int]:
    """When the log last told each kind of event about the host."""
    path = demo.home / "told.jsonl"
    await demo.type("replay", "--live", "--save", str(path), is_shown=False)
    found: dict[str, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found |= {event["type"]: record["at_ms"] for event in record["events"] if event.get("host") == host}
    return found


async def _debug_job(demo: Demo) -> str:
    demo.say("\n-- A debug job goes into the lane: it ranks first and starts at once.")
    started_s = time.monotonic()
    terms = ("--budget", "vision", "--lane", "debug", "--gpus", "1", "--min-runtime", "2m", "--timeout", "10m")
    job = await demo.submit(*terms, "--grace", "1s", "--", "sh", "-c", "echo debugging; exec sleep 600")
    view = await demo.until(job, "running")
    waited_ms = view["attempts"][0]["granted_ms"] - view["submitted_ms"]
    demo.seen["debug_wait_s"] = waited_ms / 1000
    demo.say(
        f"(granted {waited_ms / 1000:.2f} s after it was submitted, running {time.monotonic() - started_s:.1f} s after)"
    )
    return job


async def _promise(demo: Demo, idle: list[str]) -> str:
    """A gang with a window, then a claim that is promised its hosts and gets them by then; the gang's job.

    The claim comes while the window runs: where the typing took longer than that, both are asked for anew.
    """
    window_s = 0
    for number in range(_TRIES):
        window_s = min(max(_SHORTEST_WINDOW_S, round(8 * demo.slowest_s)), _LONGEST_WINDOW_S) * 2**number
        speech = await _window(demo, idle, window_s)
        vision, why = await _claim(demo)
        if why is not None:
            await _kept(demo, vision, speech, why)
            return speech
        demo.say(f"(too late: this machine needed the {window_s} s of the window for the typing; again, with a longer)")
        for job in (vision, speech):
            await demo.type("job", "cancel", job, is_shown=False)
            await demo.until(job, *TERMINAL)
    raise Failed(f"no promise was shown in {_TRIES} tries; the last window was of {window_s} s")


async def _window(demo: Demo, idle: list[str], window_s: int) -> str:
    demo.say(
        f"\n-- A gang of speech takes two whole hosts from idle work, with a window of {window_s} s: "
        "protected till then."
    )
    terms = ("--budget", "speech", "--hosts", "2", "--gpus", str(GPUS), "--min-runtime", f"{window_s}s")
    words = "echo rank $FAIRLEASE_RANK of $FAIRLEASE_WORLD_SIZE; exec sleep 600"
    job = await demo.submit(*terms, "--timeout", "15m", "--grace", "1s", "--", "sh", "-c", words)
    await demo.until(job, "granted", "running")
    views = [await demo.ask("job", "show", name) for name in idle]
    demo.seen["preempted"] = sum(a["end"] == "preempted" for view in views for a in view["attempts"])
    if demo.seen["preempted"] < len(idle):
        raise Failed("idle work did not make room for the gang")
    return job


async def _claim(demo: Demo) -> tuple[str, dict[str, Any] | None]:
    """Vision's job, and why it waits; None when it did not wait long enough to be shown that."""
    demo.say("\n-- Vision, entitled to three times as much, asks for a host. When, and why not now?")
    terms = ("--budget", "vision", "--gpus", str(GPUS), "--min-runtime", "5s", "--timeout", "1m", "--grace", "1s")
    job = await demo.submit(*terms, "--", "sh", "-c", "echo trained; sleep 1")
    why: dict[str, Any] = await demo.ask("why", job)
    until_s = time.monotonic() + _LIMIT_S
    while why["start_by_ms"] is None and why["state"] == "waiting" and time.monotonic() < until_s:
        await asyncio.sleep(0.05)
        why = await demo.ask("why", job)
    if why["start_by_ms"] is None or not why["counterfactuals"]:
        return job, None
    await demo.type("why", job)
    await demo.type("queue", "--start")
    return job, why


async def _kept(demo: Demo, job: str, speech: str, why: dict[str, Any]) -> None:
    """By the log: the claim has its hosts by when it was promised them, and the gang had its whole window."""
    demo.seen["why"] = why
    view = await demo.until(job, "running", "succeeded")
    granted_ms = view["attempts"][0]["granted_ms"]
    early_s = (why["start_by_ms"] - granted_ms) / 1000
    demo.seen["promise"] = {"start_by_ms": why["start_by_ms"], "granted_ms": granted_ms, "kept": early_s >= 0}
    if early_s < 0:
        raise Failed(f"the promise was broken by {-early_s:.2f} s")
    demo.say(f"\n(promised and kept: its hosts were granted {early_s:.2f} s before the time promised)")
    evicted = await demo.ask("job", "show", speech)
    first = evicted["attempts"][0]
    if first["end"] != "preempted" or first["ended_ms"] - first["granted_ms"] < first["window_ms"]:
        raise Failed("the gang was not preempted after its window")
    demo.say("(the gang that held them was asked to leave only after its window, and waits again at its place)")
    await demo.type("job", "show", speech)
    await demo.type("shares")


async def _exit_code(demo: Demo) -> None:
    demo.say("\n-- A submission can wait for its job, and returns the job's own exit code.")
    terms = ("--budget", "vision", "--min-runtime", "5s", "--timeout", "1m", "--wait")
    code, _ = await demo.type("submit", *terms, "--", "sh", "-c", "exit 7")
    demo.say(f"(exit code {code})")
    if code != 7:
        raise Failed(f"a job that exits with 7 gave {code}")
