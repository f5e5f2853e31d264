"""Somebody who follows a page in a clean place: fresh sources, a fresh environment and home, two terminals.

The sources are a copy of the tree. What `make setup` would fetch over the network is lent from the environment that
runs the tests; the rest, our own code, it installs as everywhere. A question is asked again until it is answered as
the page says, as a reader would who typed it too soon; everything else is typed once. A command may fail only where the
next one is `echo $?`.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.docs.session import FIRST_TERMINAL, INTERRUPT, Fence, Names, Typed, commands, fences
from tests.house.tree import CACHES, FOLDERS, ROOT
from tests.live import process

LIMIT_S: Final = 240.0
"""How long a page may be waited for at one place; the longest on a page is a window of 90 s."""
SHELL: Final = ("/bin/bash", "--noprofile", "--norc")
QUESTIONS: Final = (
    *("acct", "budget show", "cost", "doctor", "hosts", "job logs", "job show", "metrics", "plan"),
    *("queue", "rank", "shares", "why"),
)
_END: Final = "\x1eended"


class NotAsThePageSays(AssertionError):
    """What was printed, beside what the page says."""

    def __init__(self, page: str, typed: Typed, output: str, code: int | None) -> None:
        ended = "has not ended" if code is None else f"ended with {code}"
        super().__init__(
            f"{page}:{typed.line}: $ {typed.command}\n--- the page\n{typed.printed}\n--- printed, and {ended}\n{output}"
        )


class Terminal:
    """A shell that is typed into; what it prints goes to a file, and errors into the same."""

    def __init__(self, place: Path, out: Path, env: dict[str, str]) -> None:
        self._file = out.open("wb")
        self._out = out
        self._read = 0
        self._shell = subprocess.Popen(
            SHELL,
            cwd=place,
            env=env,
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._code = 0

    def begin(self, command: str) -> None:
        """Types it; `$?` is what the command before ended with."""
        assert self._shell.stdin is not None
        script = f"(exit {self._code})\n{{ {command}\n}} </dev/null\nprintf '{_END} %d\\n' $?\n"
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()

    def so_far(self) -> tuple[str, int | None]:
        """What was printed since the last call of `forget`, and the exit code once the command has ended."""
        text = self._out.read_bytes()[self._read :].decode()
        output, is_over, code = text.partition(_END)
        return output, int(code) if is_over and code.endswith("\n") else None

    def forget(self) -> None:
        """What is printed from now on is new."""
        self._code = self.so_far()[1] or 0
        self._read = self._out.stat().st_size

    def run(self, command: str) -> tuple[str, int]:
        """Its whole output and exit code."""
        self.begin(command)
        until_s = time.monotonic() + LIMIT_S
        while (found := self.so_far())[1] is None:
            assert time.monotonic() < until_s, f"`{command}` does not end; so far: {found[0]}"
            assert self._shell.poll() is None, f"`{command}` ended the shell"
            time.sleep(0.02)
        self.forget()
        return found[0], found[1]

    def interrupt(self) -> None:
        """Ctrl-C: to all that runs in this terminal, but not to the shell that reads on."""
        group = os.getpgid(self._shell.pid)
        for pid in process.pids():
            with_shell = process.read(pid, "stat").rpartition(b")")[2].split()
            if len(with_shell) > 2 and int(with_shell[2]) == group and pid != self._shell.pid:
                process.send(signal.SIGINT, pid)

    def close(self) -> None:
        process.kill(self._shell.pid)
        self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._file.close()


class Reader:
    """One reader, with what the pages named so far."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.sources = place / "fairlease"
        home = place / "home"
        home.mkdir()
        self._env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
        self.first = Terminal(self.sources, place / "first.out", self._env)
        self.second = Terminal(self.sources, place / "second.out", self._env)

    def prepare(self) -> None:
        """Makes the environment, as somebody did who comes to a page that needs it."""
        output, code = self.second.run("make setup")
        assert code == 0, output

    def follow(self, page: Path) -> int:
        """Types all of the page; how many commands that were. NotAsThePageSays at the first difference."""
        names = Names()
        typed = 0
        for fence in fences(page):
            if fence.is_typed:
                typed += self._block(page.name, fence, names)
        return typed

    def _block(self, page: str, fence: Fence, names: Names) -> int:
        lines = list(commands(fence))
        for at, one in enumerate(lines):
            is_last = at == len(lines) - 1
            if fence.mark == FIRST_TERMINAL and is_last:
                self._goes_on(page, one, names)
                continue
            terminal = self.first if fence.mark == FIRST_TERMINAL else self.second
            is_excused = not is_last and lines[at + 1].command.startswith("echo $?")
            self._typed(page, one, names, terminal, is_excused=is_excused)
        return len(lines)

    def _typed(self, page: str, one: Typed, names: Names, terminal: Terminal, *, is_excused: bool) -> None:
        command = names.said(one.command)
        until_s = time.monotonic() + LIMIT_S
        while True:
            output, code = terminal.run(command)
            if (code == 0 or is_excused) and names.agrees(one.printed, output):
                return
            if not is_question(command) or time.monotonic() > until_s:
                raise NotAsThePageSays(page, one, output, code)
            time.sleep(0.2)

    def _goes_on(self, page: str, one: Typed, names: Names) -> None:
        """What is started and prints while it goes on; or what is there goes on, or ends, as the page says."""
        self.first.forget()
        if one.command == INTERRUPT:
            self.first.interrupt()
        else:
            self.first.begin(names.said(one.command))
        until_s = time.monotonic() + LIMIT_S
        while True:
            output, code = self.first.so_far()
            is_there = code is not None or one.command != INTERRUPT
            if is_there and names.agrees(one.printed, output):
                break
            if time.monotonic() > until_s or (code is not None and not names.agrees(one.printed, output)):
                raise NotAsThePageSays(page, one, output, code)
            time.sleep(0.05)
        self.first.forget()

    def close(self) -> None:
        self.first.close()
        self.second.close()
        process.kill_all(self.place)


def is_question(command: str) -> bool:
    """Whether asking twice changes nothing; a line of several commands is none."""
    words = command.removeprefix("fairlease ")
    return words != command and "&&" not in words and any(f"{words} ".startswith(f"{verb} ") for verb in QUESTIONS)


@contextmanager
def reader(place: Path) -> Iterator[Reader]:
    """Somebody with a fresh copy of the sources; nothing that was started is left."""
    _copy(place / "fairlease")
    _lend(place / "fairlease" / ".venv")
    somebody = Reader(place)
    try:
        yield somebody
    finally:
        somebody.close()


def _copy(sources: Path) -> None:
    sources.mkdir(parents=True)
    ignored = shutil.ignore_patterns(*CACHES, ".*_cache")
    for name in FOLDERS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith(".venv"):
            shutil.copy(path, sources)


def _lend(venv: Path) -> None:
    """An environment in which the locked packages are there already, and nothing of ours."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    paths = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (venv / "lib" / version / "site-packages" / "lent.pth").write_text("".join(f"{path}\n" for path in paths))
    server = Path(sysconfig.get_path("scripts")) / "nats-server"
    (venv / "bin" / server.name).symlink_to(server)
    for stamp in (".ready-run", ".ready-dev"):
        (venv / stamp).touch()
