"""A commit of a repository as a working directory, by the system's git.

Fetched alone where the server lets commits be named, else with all branches and tags; checked out without
hooks, and believed only if git itself says that this commit stands there. Nothing is asked of anybody: a
repository that needs a password which git's own configuration does not have is refused. The protocols that
git may use are the site's to choose, also for what a server redirects to.

Where runs are users' (1.16) git is the user's too, with his configuration and keys, and reads what he may read: else
a contract that names a repository would have it read by root. What he is given is bounded: bytes on disk, time, words.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairlease.agent.identity import User
from fairlease.agent.stores import aside
from fairlease.runtime.settings import GIT_SCHEMES

TIMEOUT_S: Final = 300.0
MOST_BYTES: Final = 2 * 1024 * 1024 * 1024
"""On disk, of a clone with its checkout."""
_MOST_FILES: Final = 1_000_000
_LOOK_S: Final = 1.0
_MOST_SAID_BYTES: Final = 64 * 1024
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_AS_USER: Final = Path(__file__).with_name("as_user.py")
_SHARED: Final = re.compile(
    r"PATH|LANG|TZ|GIT_SSH_COMMAND|(?:https?|no|all)_proxy|SSL_CERT_(?:FILE|DIR)", re.IGNORECASE
)
"""What a user's git has of the agent's environment: nothing that names the agent's keys, agents or places."""
_QUIET: Final = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")
_ALL: Final = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
_MOST_CHARS: Final = 200
_AT_ONCE: Final = 4


class CommitRefused(Exception):
    """The commit cannot be had; the text says why."""


def scheme_of(repo: str) -> str:
    """`https`, `file` or `ssh`: what a contract may name is one of these."""
    for scheme in ("https", "file"):
        if repo.startswith(f"{scheme}://"):
            return scheme
    return "ssh"


class Git:
    """The git of this machine, with the protocols that it may use."""

    def __init__(
        self,
        schemes: tuple[str, ...] = GIT_SCHEMES,
        *,
        timeout_s: float = TIMEOUT_S,
        program: str = "git",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._schemes = schemes
        self._timeout_s = timeout_s
        self._program = program
        self._most_bytes = most_bytes
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def check_out(self, repo: str, commit: str, into: Path, user: User | None = None) -> None:
        """Makes `into` a clone that stands at the commit, by this user and his, or by us and ours.

        CommitRefused, or OSError; either may leave it half made.
        """
        if _COMMIT.fullmatch(commit) is None:
            raise CommitRefused("a commit is named by all its 40 or 64 hexadecimal digits")
        if scheme_of(repo) not in self._schemes:
            allowed = ", ".join(self._schemes) or "none"
            raise CommitRefused(
                f"this host allows no {scheme_of(repo)} repositories (FAIRLEASE_GIT_SCHEMES: {allowed})"
            )
        program = shutil.which(self._program)
        if program is None:
            raise CommitRefused("there is no git on this host")
        async with self._room:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await aside(lambda: _make(into, user))
                    await self._bounded(self._check_out(_Place(program, into, user), repo, commit), into)
            except TimeoutError as error:
                raise CommitRefused(f"git did not bring it within {self._timeout_s:g} s") from error

    async def _bounded(self, work: Coroutine[Any, Any, None], into: Path) -> None:
        """Does the work; CommitRefused as soon as it is seen to have filled more of the disk than it may."""
        doing, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._outgrown(into))
        try:
            await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            if not doing.done() or await aside(lambda: _is_above(into, self._most_bytes)):
                raise CommitRefused(f"it takes more than {self._most_bytes} bytes, or {_MOST_FILES} files")
        finally:
            for task in (doing, watching):
                task.cancel()
            await asyncio.wait((doing, watching))

    async def _outgrown(self, into: Path) -> None:
        while True:
            if await aside(lambda: _is_above(into, self._most_bytes)):
                return
            await asyncio.sleep(_LOOK_S)

    async def _check_out(self, at: "_Place", repo: str, commit: str) -> None:
        form = "sha256" if len(commit) == 64 else "sha1"
        await self._done(at, "init", "-q", "--template=", f"--object-format={form}")
        await self._done(at, "remote", "add", "--end-of-options", "origin", repo)
        fetch = ("fetch", "-q", "--no-tags", "--no-recurse-submodules")
        try:
            await self._done(at, *fetch, "--depth=1", "--end-of-options", "origin", commit)
        except CommitRefused:  # a server may give nothing but what branches and tags lead to
            await self._done(at, *fetch, "--end-of-options", "origin", *_ALL)
        await self._done(at, "checkout", "-q", "--detach", commit)
        found = await self._done(at, "rev-parse", "HEAD")
        if found != commit:
            raise CommitRefused(f"git checked out {found[:64]!r}")

    async def _done(self, at: "_Place", *words: str) -> str:
        """What a git said that did well. Its whole process group goes with it when it is not waited for any more."""
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *at.prefix(),
            *_QUIET,
            *words,
            cwd=at.into,
            env=environment(os.environ, self._schemes, at.user),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            said, wrong = await asyncio.gather(_end_of(child.stdout), _end_of(child.stderr))
            await child.wait()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        if child.returncode:
            raise CommitRefused(_last_line(wrong) or f"git {words[0]} ended with {child.returncode}")
        return said.decode(errors="replace").strip()


class _Place(NamedTuple):
    """Where git works, and as whom."""

    program: str
    into: Path
    user: User | None

    def prefix(self) -> tuple[str, ...]:
        """The words before git's own."""
        if self.user is None:
            return (self.program,)
        ids = (self.user.name, str(self.user.uid), str(self.user.gid))
        return (sys.executable, "-I", "-S", "-X", "utf8", str(_AS_USER), *ids, self.program)


def _make(into: Path, user: User | None) -> None:
    into.mkdir(mode=0o700)
    if user is not None:
        os.chown(into, user.uid, user.gid)


def _is_above(directory: Path, most_bytes: int) -> bool:
    """Whether a tree takes more of the disk or has more entries than it may. Its owner may change it meanwhile."""
    size, count, left = 0, 0, [str(directory)]
    while left:
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                count += 1
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                if size > most_bytes or count > _MOST_FILES:
                    return True
    return False


async def _end_of(stream: asyncio.StreamReader) -> bytes:
    """The last of all that is said there."""
    kept = b""
    while chunk := await stream.read(_MOST_SAID_BYTES):
        kept = (kept + chunk)[-_MOST_SAID_BYTES:]
    return kept


def environment(agent: Mapping[str, str], schemes: tuple[str, ...], user: User | None = None) -> dict[str, str]:
    """The agent's, without what would lead git elsewhere or tell it our addresses; and never a question.

    Of a user's git it is his own, with the agent's way into the network.
    """
    if user is None:
        kept = {name: value for name, value in agent.items() if not name.startswith(("GIT_", "FAIRLEASE_"))}
    else:
        kept = {name: value for name, value in agent.items() if _SHARED.fullmatch(name)}
        kept |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    return {
        **kept,
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": ":".join(schemes),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_SSH_COMMAND": agent.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=20"),
    }


def _last_line(data: bytes) -> str:
    """The last line that says something, printable and short."""
    lines = data.decode(errors="replace").replace("\r", "\n").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(letter if letter.isprintable() else "?" for letter in last)[:_MOST_CHARS]
