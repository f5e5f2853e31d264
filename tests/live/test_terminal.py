"""A person at a job's terminal, through the whole cell: typed at a real terminal, seen, left and found again."""

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.live import process
from tests.live.cell import Up, up_at
from tests.live.court import LIMIT_S, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUDGET = ("submit", "--interactive", "--budget", "team-a")
PLAIN = ("--env", "PS1=$ ", "--env", "HISTFILE=/dev/null")
DETACH = b"\x1dd"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("terminal") / "cell") as up:
        yield up


class Person:
    """A command at a terminal of its own, of 40 rows and 120 columns."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self.seen = b""
        self.terminal, self._other = os.openpty()
        self.resize(40, 120)
        os.set_blocking(self.terminal, False)
        self.modes = termios.tcgetattr(self._other)
        self.child: asyncio.subprocess.Process

    async def start(self, *words: str) -> "Person":
        self.child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", STARTER, *words),
            env={**self._up.env, "TERM": "xterm"},
            stdin=self._other,
            stdout=self._other,
            stderr=self._other,
            start_new_session=True,
        )
        return self

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str | bytes) -> None:
        os.write(self.terminal, text.encode() if isinstance(text, str) else text)

    def look(self) -> str:
        """All that was ever on the screen."""
        try:
            while data := os.read(self.terminal, 65536):
                self.seen += data
        except OSError:
            pass
        return self.seen.decode(errors="replace")

    async def sees(self, text: str) -> str:
        await eventually(lambda: text in self.look(), f"{text!r} is shown")
        return self.look()

    async def code(self) -> int:
        """The exit code, once the command has left; the terminal is as it was before."""
        code = await asyncio.wait_for(self.child.wait(), LIMIT_S)
        assert termios.tcgetattr(self._other) == self.modes, "the terminal was not put back"
        self.look()
        return code

    def close(self) -> None:
        os.close(self.terminal)
        os.close(self._other)


STARTER = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from fairlease.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""The command as a shell would start it: at a terminal that is its own."""


@pytest_asyncio.fixture(loop_scope="module")
async def people(up: Up) -> AsyncIterator[list[Person]]:
    """Those of one test; their commands are ended and their terminals closed."""
    people: list[Person] = []
    yield people
    for person in people:
        if person.child.returncode is None:
            person.child.kill()
            await person.child.wait()
        person.close()


async def arrived(up: Up, people: list[Person], *words: str) -> Person:
    person = Person(up)
    people.append(person)
    return await person.start(*words)


async def at_a_shell(up: Up, people: list[Person], *more: str) -> tuple[Person, str]:
    """Somebody who submitted a shell and is attached to it; and the job's id."""
    person = await arrived(up, people, *BUDGET, *PLAIN, *more, "--", "sh", "-i")
    said = await person.sees("ctrl-] d detaches")
    found = re.search(r"job-[a-z2-7]{20}", said)
    assert found is not None
    await person.sees("\n$ ")
    return person, found.group()


async def test_a_shell_is_submitted_typed_into_and_left_with_its_own_code(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    person, job = await at_a_shell(up, people)
    person.type("echo at-$FAIRLEASE_JOB; stty size; exit 3\n")
    assert await person.code() == 3
    assert f"at-{job}" in person.look()
    assert "40 120" in person.look()
    assert f"{job} failed: exit code 3" in person.look()
    request = (await up.event(job, "job-admitted"))["request"]
    assert (request["lane"], request["gpus_per_host"], request["min_runtime_ms"]) == ("debug", 1, 900_000)
    await up.judge()


async def test_keys_and_windows_go_to_the_job_and_not_to_the_command(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    person, _ = await at_a_shell(up, people)
    person.type("sleep 600\n")
    await eventually(lambda: any(b"sleep" in _words(pid) for pid in process.jobs_of(up.home)), "it sleeps")
    person.type(b"\x03")
    person.type("echo on-$((1 + 1))\n")
    await person.sees("on-2")
    person.resize(22, 77)
    person.type("stty size\n")
    if "22 77" not in await person.sees("stty size"):
        await eventually(lambda: person.type("stty size\n") or "22 77" in person.look(), "the new size", pause_s=0.3)
    person.type("exit\n")
    assert await person.code() in (0, 130)


async def test_who_detaches_finds_the_same_shell_again(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    person, job = await at_a_shell(up, people)
    person.type("x=kept-$((40 + 2)); echo $x\n")
    await person.sees("kept-42")
    person.type(DETACH)
    assert await person.code() == 0
    assert f"`fairlease job attach {job}` comes back" in person.look()
    again = await arrived(up, people, "job", "attach", job)
    await again.sees("kept-42")
    again.type("echo again-$x; exit 5\n")
    assert await again.code() == 5
    assert "again-kept-42" in again.look()
    await up.judge()


async def test_two_are_at_one_shell_and_a_third_reads_along(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    one, job = await at_a_shell(up, people)
    two = await arrived(up, people, "job", "attach", job)
    three = await arrived(up, people, "job", "attach", job, "--read-only")
    await two.sees("ctrl-] d detaches")
    await three.sees("reading along")
    one.type("echo one-$((1))\n")
    two.type("echo two-$((2))\n")
    three.type("echo three-$((3))\n")
    for person in (one, two, three):
        await person.sees("one-1")
        await person.sees("two-2")
    one.type("exit 6\n")
    assert [await person.code() for person in (one, two, three)] == [6, 6, 6]
    assert "three-3" not in one.look()


async def test_who_reads_along_leaves_by_the_keys_that_detach_too(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    one, job = await at_a_shell(up, people)
    other = await arrived(up, people, "job", "attach", job, "--read-only")
    await other.sees("reading along, ctrl-] d detaches")
    one.type("echo seen-$((1))\n")
    await other.sees("seen-1")
    other.type(b"exit 9\n\x1dd")
    assert await other.code() == 0
    one.type("exit 6\n")
    assert await one.code() == 6, "what was typed beside it went nowhere"


async def test_an_agent_that_is_killed_costs_a_moment_and_the_shell_is_the_same(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    person, job = await at_a_shell(up, people)
    person.type("x=kept-$((40 + 2)); echo $x\n")
    await person.sees("kept-42")
    (agent,) = [pid for pid in up.parts()[1:] if process.is_part(pid, "agent")]
    process.kill(agent)
    await person.sees("the link to the terminal is lost")
    await person.sees("attached again")
    person.type("echo again-$x; exit 7\n")
    assert await person.code() == 7
    assert "again-kept-42" in person.look()
    await up.judge()
    assert len(up.journal.of_job(job, "gang-granted")) == 1


async def test_a_bus_that_is_killed_costs_a_moment(up: Up, people: list[Person]) -> None:
    person, _ = await at_a_shell(up, people)
    (bus,) = [pid for pid in up.parts()[1:] if process.is_part(pid, "bus")]
    process.kill(bus)
    person.type("echo there-$((1))\n")

    def is_there() -> bool:
        if "there-1" not in person.look():
            person.type("echo there-$((1))\n")
        return "there-1" in person.look()

    await eventually(is_there, "the shell is there", pause_s=0.5)
    person.type("exit 8\n")
    assert await person.code() == 8
    await up.judge()


async def test_a_stranger_is_refused(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    person, job = await at_a_shell(up, people)
    code, _, said = await up.run("job", "attach", job, "--account", "ci")
    assert (code, "is a job of another account; only its own may attach" in said) == (1, True), said
    person.type("exit\n")
    await person.code()


async def test_at_its_timeout_the_job_ends_and_who_is_there_is_told(up: Up, people: list[Person]) -> None:
    # rule: 1.17
    words = ("--timeout", "4s", "--min-runtime", "4s", "--grace", "1s")
    person, job = await at_a_shell(up, people, *words)
    assert await person.code() == 202
    assert "the job is asked to stop: timed-out; TERM in" in person.look()
    assert f"{job} timed-out" in person.look()
    await up.judge()


async def test_a_command_that_is_told_to_go_puts_the_terminal_back_and_leaves_the_job(
    up: Up, people: list[Person]
) -> None:
    person, job = await at_a_shell(up, people)
    person.child.terminate()
    assert await person.code() == 130
    assert f"interrupted: {job} goes on without this command" in person.look()
    again = await arrived(up, people, "job", "attach", job)
    await again.sees("ctrl-] d detaches")
    again.type("exit\n")
    assert await again.code() == 0


async def test_a_script_needs_no_terminal(up: Up, tmp_path: Path) -> None:
    # rule: 1.17
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairlease", *BUDGET, "--", "sh"),
        env=up.env,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    out, said = await asyncio.wait_for(child.communicate(b"echo from-a-$((1))-script\nexit 9\n"), LIMIT_S)
    assert child.returncode == 9, said.decode()
    assert b"from-a-1-script" in out
    file = tmp_path / "script"
    file.write_text("echo to-the-$((1))-end")
    with file.open() as script:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlease", *BUDGET, "-q", "--", "sh"),
            env=up.env,
            stdin=script,
            stdout=pipe,
            stderr=pipe,
        )
        out, said = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode == 0, (out, said)
    await up.judge()


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
