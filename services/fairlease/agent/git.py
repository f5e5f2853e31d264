"""A commit of a repository as a working directory, by the system's git.

Fetched alone where the server lets commits be named, else with all branches and tags; checked out without
hooks, and believed only if git itself says that this commit stands there. Nothing is asked of anybody: a
repository that needs a password which git's own configuration does not have is refused. The protocols that
git may use are the site's to choose, also for what a server redirects to.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fairlease.runtime.settings import GIT_SCHEMES

TIMEOUT_S: Final = 300.0
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
        self, schemes: tuple[str, ...] = GIT_SCHEMES, *, timeout_s: float = TIMEOUT_S, program: str = "git"
    ) -> None:
        self._schemes = schemes
        self._timeout_s = timeout_s
        self._program = program
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def check_out(self, repo: str, commit: str, into: Path) -> None:
        """Makes `into` a clone that stands at the commit. CommitRefused, or OSError; either may leave it half made."""
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
                    await self._check_out(program, repo, commit, into)
            except TimeoutError as error:
                raise CommitRefused(f"git did not bring it within {self._timeout_s:g} s") from error

    async def _check_out(self, program: str, repo: str, commit: str, into: Path) -> None:
        form = "sha256" if len(commit) == 64 else "sha1"
        inside = (program, "-C", str(into), *_QUIET)
        await self._done(program, "init", "-q", "--template=", f"--object-format={form}", str(into))
        await self._done(*inside, "remote", "add", "origin", repo)
        fetch = (*inside, "fetch", "-q", "--no-tags", "--no-recurse-submodules")
        try:
            await self._done(*fetch, "--depth=1", "origin", commit)
        except CommitRefused:  # a server may give nothing but what branches and tags lead to
            await self._done(*fetch, "origin", *_ALL)
        await self._done(*inside, "checkout", "-q", "--detach", commit)
        found = await self._done(*inside, "rev-parse", "HEAD")
        if found != commit:
            raise CommitRefused(f"git checked out {found[:64]!r}")

    async def _done(self, *words: str) -> str:
        """What a git said that did well. Its whole process group goes with it when it is not waited for any more."""
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *words,
            env=environment(os.environ, self._schemes),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        try:
            said, wrong = await child.communicate()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        if child.returncode:
            raise CommitRefused(_last_line(wrong) or f"git {words[1]} ended with {child.returncode}")
        return said.decode(errors="replace").strip()


def environment(agent: Mapping[str, str], schemes: tuple[str, ...]) -> dict[str, str]:
    """The agent's, without what would lead git elsewhere or tell it our addresses; and never a question."""
    kept = {name: value for name, value in agent.items() if not name.startswith(("GIT_", "FAIRLEASE_"))}
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
