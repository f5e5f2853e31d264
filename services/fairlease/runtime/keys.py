"""Who one is on the bus: a key in a file, one for each identity of the table (permissions.py).

A file `<state>/keys/<identity>.key` holds the name and the seed of an nkey and is readable by its owner alone;
the bus is told the public half and nothing else, so that who reads its configuration can pose as nobody.
The surprising choice: where a state directory has keys, a missing one is an error and never a
connection without a key, because that would only be refused later and by a poorer text.
"""

import contextlib
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairlease.runtime import plain_file
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.secret import Secret
from fairlease.runtime.settings import Settings

DEPLOYER: Final = "deployer"
AUDIT: Final = "audit"
AGENT: Final = "agent"
"""The agent that `fairlease up` starts; others have names of their own."""
KEYS: Final = "keys"
_SUFFIX: Final = ".key"
_MOST_BYTES: Final = 4_096
"""Of a key: a name and a seed."""
_YOUNG_S: Final = 60.0
"""Making one takes some ms."""
_SEED_BYTES: Final = 32
_SEED: Final = re.compile(r"SU[A-Z2-7]{56}")


def service_name(service: str) -> str:
    """Who all replicas of a service are."""
    return f"service-{service}"


def agent_name(agent: str) -> str:
    """Who an agent is, whatever hosts it serves."""
    return f"agent-{agent}"


def client_name(account: str) -> str:
    """Who speaks for a client account."""
    return f"client-{account}"


def auditor_name(auditor: str) -> str:
    """Who reads a cell's log and writes nothing: a person or a program that somebody named."""
    return f"auditor-{auditor}"


def is_auditor(identity: str) -> bool:
    """Whether this one may read the whole log: the cell's own, or one that was named."""
    return identity == AUDIT or identity.startswith(auditor_name(""))


class NoKey(ConfigWrong):
    """There are keys, and none for this identity, or none that the bus knows."""


class KeyUnusable(ConfigWrong):
    """The file that should hold the key is not there, is closed to us, or holds something else."""


class Key(NamedTuple):
    """An identity and the seed that proves it; never shown."""

    identity: str
    seed: Secret

    def options(self) -> dict[str, Any]:
        """The arguments of a bus client that use the key: it signs, and it hears answers under its own prefix."""
        return {"nkeys_seed_str": self.seed.reveal(), "inbox_prefix": self.inbox_prefix}

    @property
    def inbox_prefix(self) -> bytes:
        """Where the bus lets it hear answers."""
        return f"_INBOX.{self.identity}".encode()

    def public(self) -> str:
        """The half that the bus is told."""
        import nkeys  # noqa: PLC0415 - 5 ms that a command without a key, or an answer from a file, need not pay

        return str(nkeys.from_seed(bytearray(self.seed.reveal().encode())).public_key.decode())


def key_path(home: Path, identity: str) -> Path:
    """Where the key of an identity lies in a state directory."""
    return home / KEYS / f"{identity}{_SUFFIX}"


def make(home: Path, identity: str) -> Key:
    """The identity's key, made now where there is none; KeyUnusable for a file that holds something else."""
    path = key_path(home, identity)
    _sweep(path.parent)
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        _write(path, json.dumps({"identity": identity, "seed": _fresh_seed().reveal()}) + "\n")
    return read(path)


def find(settings: Settings, identity: str) -> Key | None:
    """The key to connect with: that of FAIRLEASE_CREDS, else the identity's in the state directory.

    None where the state directory has no keys at all: its bus is open, or somewhere else. NoKey when
    it has keys and this one is not among them; KeyUnusable for a file that is no key.
    """
    if settings.creds:
        return read(Path(settings.creds))
    if not (settings.state_dir / KEYS).is_dir():
        return None
    path = key_path(settings.state_dir, identity)
    if not path.exists():
        raise NoKey(f"there is no key of {identity} in {path.parent}; name its file in FAIRLEASE_CREDS")
    return read(path)


def read(path: Path) -> Key:
    """The key in that file; KeyUnusable, which shows nothing of it, when there is none."""
    try:
        found = json.loads(plain_file.text(path, _MOST_BYTES))
        key = Key(str(found["identity"]), Secret(str(found["seed"])))
    except FileNotFoundError:
        raise KeyUnusable(
            f"key {path}: there is no such file; name the one you were given in FAIRLEASE_CREDS"
        ) from None
    except OSError as error:
        raise KeyUnusable(
            f"key {path}: cannot be read ({error.strerror}); mend its rights or FAIRLEASE_CREDS"
        ) from None
    except (ValueError, KeyError, TypeError):
        key = None
    if key is None or _SEED.fullmatch(key.seed.reveal()) is None:  # the client would fail over it later, and quote it
        raise KeyUnusable(
            f"key {path}: is no key; delete it, and the next start of the cell with `fairlease up` makes another"
        )
    return key


def _fresh_seed() -> Secret:
    """The seed of a new user in the bus's own writing: role, 32 random bytes, checksum, all in base32."""
    import nkeys  # noqa: PLC0415 - as above

    return Secret(bytes(nkeys.encode_seed(secrets.token_bytes(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)).decode())


def _sweep(directory: Path) -> None:
    """Removes what a run that was killed left half made; what is young may be another's who makes keys just now."""
    for left in directory.glob("*.new"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.lstat().st_mtime > _YOUNG_S:
                left.unlink()


def _write(path: Path, text: str) -> None:
    """On disk before it has its name, and never readable by others; of two who make the same key one is first."""
    fresh = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(fresh)
    finally:
        fresh.unlink(missing_ok=True)
