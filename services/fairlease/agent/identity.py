"""Whose processes an attempt's are (1.16): the submitter's account, mapped to a user of this host by a file.

Only root can give a process to somebody else. So where the agent is root and a file is named, every run
belongs to the user whom the file gives its account, and an account that it does not give anybody does not
run here: the surprising part, for the account is good everywhere else. The file decides who may act as whom,
so it is believed only while it is root's and nobody else can write it, and read anew for each run. No account
becomes root by a name that hides it.

A user reaches the directory of his run by its name, through directories that he may enter and not list.
"""

import contextlib
import logging
import os
import pwd
import re
import stat
from pathlib import Path
from typing import Final

import msgspec

from fairlease.runtime.errors import ConfigWrong
from fairlease_schemas.ids import AccountId, is_name

log = logging.getLogger("fairlease.agent")

EVERYBODY: Final = "*"
ROOT: Final = "root"
ENTER: Final = 0o711
"""Of a directory that users enter and do not list."""
_AGENT, _STORES = _SHARED = ("agent", "stores")
"""All of the state directory that users have business in."""
_MOST_BYTES: Final = 1 << 20
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")


class User(msgspec.Struct, frozen=True):
    """A user of this host."""

    name: str
    uid: int
    gid: int
    home: str


class IdentityRefused(Exception):
    """The run cannot start as anybody; the text says why, for the end's detail."""


class Users:
    """The file that maps accounts: lines `ACCOUNT USER`, or `* USER` for all others; `#` begins a remark."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """ConfigWrong, in one line, when the file cannot be believed or read. Users need not be there yet."""
        _parsed(self._path)

    def user_of(self, account: AccountId) -> User:
        """Whose processes those of this account are here; IdentityRefused when nobody's. May ask a directory service.

        The account's own line goes before `*`. An order of an earlier release names no account, and only `*` fits it.
        """
        try:
            names = _parsed(self._path)
        except ConfigWrong as error:
            raise IdentityRefused(str(error)) from error
        name = names.get(account) or names.get(EVERYBODY)
        if name is None:
            raise IdentityRefused(
                f"account {account or 'unsaid'} has no user on this host: "
                f"add a line '{account or EVERYBODY} USER' to {self._path}"
            )
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise IdentityRefused(
                f"account {account or 'unsaid'} is user {name} by {self._path}, and this host knows no such user"
            ) from None
        if found.pw_uid == 0 and name != ROOT:
            raise IdentityRefused(
                f"account {account or 'unsaid'} is user {name} by {self._path}, and that is root: write root to mean it"
            )
        return User(name=name, uid=found.pw_uid, gid=found.pw_gid, home=found.pw_dir)


def open_users(path: str, state_dir: Path) -> Users | None:
    """The map of this agent, ready for use; None where every run is the agent's own user's. To be called once.

    Says which it is. ConfigWrong when the file cannot be believed, or users could not reach their runs.
    """
    if os.geteuid() != 0:
        unused = f", and {path} is not used: only root can give a run to somebody else" if path else ""
        log.info("every run here is user %d's, who is not root%s", os.geteuid(), unused)
        return None
    if not path:
        log.warning(
            "every run here is root's: name a file with lines 'ACCOUNT USER' by --users or FAIRLEASE_USERS to change it"
        )
        return None
    users = Users(Path(path))
    users.check()
    _open_state(state_dir)
    log.info("every run here is the user's whom %s names for its account", path)
    return users


def let_in(*directories: Path) -> None:
    """Lets users enter these, and not list them. OSError as usual."""
    for directory in directories:
        directory.chmod(ENTER)


def _open_state(state_dir: Path) -> None:
    """Makes the state directory one that users can pass through, and see nothing of but their own."""
    for above in state_dir.parents:
        if above.exists() and not above.stat().st_mode & stat.S_IXOTH:
            raise ConfigWrong(
                f"FAIRLEASE_HOME={state_dir}: users cannot enter {above}, so their runs could not work below it; "
                "choose a directory that all may pass through, such as /var/lib/fairlease"
            )
    state_dir.mkdir(mode=ENTER, parents=True, exist_ok=True)
    for entry in state_dir.iterdir():
        if entry.name not in _SHARED and not entry.is_symlink():
            with contextlib.suppress(FileNotFoundError):
                entry.chmod(stat.S_IMODE(entry.stat().st_mode) & 0o700)
    for name in _SHARED:
        (state_dir / name).mkdir(mode=0o700, exist_ok=True)
    let_in(state_dir, state_dir / _AGENT)
    stores = state_dir / _STORES  # may be a link to what others share too: more may be let in than were, never fewer
    stores.chmod(stat.S_IMODE(stores.stat().st_mode) | ENTER)


def _parsed(path: Path) -> dict[str, str]:
    """Account to user, in the order of the file; ConfigWrong with the line that cannot be read."""
    names: dict[str, str] = {}
    for number, line in enumerate(_believed(path).splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not (words[0] == EVERYBODY or is_name(words[0])) or not _USER.fullmatch(words[1]):
            raise ConfigWrong(f"{path}:{number}: {line[:80]!r} is not 'ACCOUNT USER' or '* USER'")
        if names.setdefault(words[0], words[1]) != words[1]:
            raise ConfigWrong(f"{path}:{number}: account {words[0]} is {names[words[0]]} by an earlier line: keep one")
    return names


def _believed(path: Path) -> str:
    """The text of a plain file that is root's and that nobody else can write."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigWrong(f"{path}: is no plain file; write lines 'ACCOUNT USER' into one")
            if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigWrong(
                    f"{path}: user {found.st_uid} owns it, its mode is {stat.S_IMODE(found.st_mode):04o}, and it says "
                    f"who may act as whom: chown root {path} && chmod 644 {path}"
                )
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigWrong(
            f"{path}: cannot be read ({error.strerror}); it is named by --users or FAIRLEASE_USERS"
        ) from error
    if len(data) > _MOST_BYTES:
        raise ConfigWrong(f"{path}: has more than {_MOST_BYTES} bytes")
    return data.decode(errors="replace")
