"""The code that an attempt runs, brought beside the runs and moved in when the attempt starts (1.13).

Each attempt has its own copy, whatever another did to its own. What an earlier agent had brought for attempts
that never began is cleared at the start: their orders come again.
"""

import shutil
from pathlib import Path
from typing import Final

from fairlease.agent.bundles import Bundles
from fairlease.agent.contracts import Code
from fairlease.agent.git import CommitRefused, Git
from fairlease.agent.identity import User, let_in
from fairlease.agent.record import clear, give_tree
from fairlease.agent.stores import aside
from fairlease.agent.unpacking import BundleRefused
from fairlease_schemas.ids import AccountId, AttemptId

CODE: Final = "code"
BUNDLES: Final = "bundles"


class SourceRefused(Exception):
    """The run has no code; the text names it and says why, for the end's detail."""


class Sources:
    """Where the runs of one host get their code from. `home` is the host's."""

    def __init__(self, home: Path, bundles: Bundles, git: Git) -> None:
        self._staged = home / CODE
        self._bundles = bundles
        self._git = git
        self._count = 0

    def open(self) -> None:
        """Clears what is left of before."""
        shutil.rmtree(self._staged, ignore_errors=True)
        self._bundles.open()

    async def stage(self, attempt: AttemptId, account: AccountId, code: Code, user: User | None = None) -> Path:
        """The directory with an attempt's code; a clone is made by this user, where there is one.

        SourceRefused for what cannot become right, OSError from the disk.
        """
        self._count += 1  # what was called off may still be at work on its own place
        place = self._staged / f"{attempt}.{self._count}"
        self._staged.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user is not None:
            let_in(self._staged)
        is_brought = False
        try:
            if code.bundle:
                await self._bundles.put(account, code.bundle, place)
                if user is not None:
                    await aside(lambda: give_tree(place, user))  # of many files it takes its time
            else:
                await self._git.check_out(code.repo, code.commit, place, user)
            is_brought = True
        except BundleRefused as refused:
            raise SourceRefused(f"bundle {code.bundle[:80]}: {refused}") from refused
        except CommitRefused as refused:
            raise SourceRefused(f"commit {code.commit[:64]} of {code.repo[:200]}: {refused}") from refused
        finally:
            if not is_brought:
                clear(place)
        return place
