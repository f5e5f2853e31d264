"""What this environment tells a process, looked at before a process stumbles over it.

A variable that nobody reads does nothing, and a typo in one is a setting that silently is not there. So names that are
almost one of ours are pointed out; others are let be, because a job's own environment has many that begin alike.
"""

import difflib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fairlease.runtime import keys, tls
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import OWN_SERVER, Settings, read_settings
from fairlease.runtime.spans import check_sink

VARIABLES: Final = (
    *("FAIRLEASE_HOME", "FAIRLEASE_URL", "FAIRLEASE_CELL", "FAIRLEASE_ACCOUNT", "FAIRLEASE_REPLICA"),
    *("FAIRLEASE_POOL", "FAIRLEASE_LABELS", "FAIRLEASE_HOST_ADDRESS", "FAIRLEASE_USERS", "FAIRLEASE_GIT_SCHEMES"),
    *("FAIRLEASE_CREDS", "FAIRLEASE_CA", "FAIRLEASE_TRACES", "FAIRLEASE_METRICS_PORT", OWN_SERVER),
)
"""What is read, of all that begins with FAIRLEASE_; a job is told of more."""
_ALIKE: Final = 0.85
_TOLD_TO_JOBS: Final = ("FAIRLEASE_HOST", "FAIRLEASE_HOSTS", "FAIRLEASE_TOKEN", "FAIRLEASE_SOURCE", "FAIRLEASE_RANK")


def trouble_with(env: Mapping[str, str]) -> str:
    """What is wrong with these variables, in one line; empty when they are well."""
    for name in sorted(env):
        if name.startswith("FAIRLEASE_") and name not in VARIABLES and name not in _TOLD_TO_JOBS:
            alike = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=_ALIKE)
            if alike:
                return f"{name} is read by nobody; {alike[0]} is"
    try:
        settings = read_settings(env=env)
        if settings.traces:
            check_sink(settings.traces)
        tls.options(settings.url, Path(settings.ca) if settings.ca else None)
    except ConfigWrong as error:
        return str(error)
    return ""


def key_of(settings: Settings, account: str) -> str:
    """Which key speaks for this account from here, in words; ConfigWrong for one that is missing or is not right.

    Whoever reads a key is its account, and what has a broken one cannot start: so all keys of the state directory are
    looked at.
    """
    key = keys.find(settings, keys.client_name(account))
    where = settings.state_dir / keys.KEYS
    if key is None:
        return f"none in {settings.state_dir}: a bus without keys, or somebody else's"
    path = Path(settings.creds) if settings.creds else keys.key_path(settings.state_dir, keys.client_name(account))
    if key.identity != keys.client_name(account):
        raise ConfigWrong(
            f"key {path}: is of {key.identity}, and account {account} asks; name its key in FAIRLEASE_CREDS, or "
            "another account in FAIRLEASE_ACCOUNT"
        )
    for one in sorted({path, *where.glob("*.key")}):
        if stat.S_IMODE(one.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigWrong(f"key {one}: others may read or change it; `chmod 600` it, and make it anew if they did")
        keys.read(one)
    return f"{key.identity}, {key.public()[:8]}… in {path}"


def told_by(env: Mapping[str, str]) -> list[str]:
    """Which of our variables are set, by name."""
    return [name for name in VARIABLES if env.get(name)]


def plain(settings: Settings) -> dict[str, object]:
    """Settings as data: paths as text."""
    return {
        name: value if isinstance(value, str | int | tuple | None) else str(value)
        for name in settings.__struct_fields__
        for value in [getattr(settings, name)]
    }
