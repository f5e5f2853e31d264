"""Which rules play here: a digest of the sources that figures of a run depend on.

The version is not enough: whoever tries other rules changes the sources and not the version. Runs are played in
processes that read the sources anew, so that a change while an exploration is under way would go by unseen.
"""

import hashlib
from pathlib import Path
from typing import Final

import fairlease
import fairlease_schemas

_PARTS: Final = ("core", "figures", "simulator", "trace")
_APART: Final = "page"
"""Pages show figures and change none."""


def code_digest() -> str:
    """The SHA-256, in hex, of the names and texts of those sources, in the order of their names."""
    roots = [Path(next(iter(fairlease.__path__)), part) for part in _PARTS]
    roots.append(Path(next(iter(fairlease_schemas.__path__))))
    found = hashlib.sha256()
    for root in roots:
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".json")):
            name = path.relative_to(root)
            if _APART not in name.parts:
                text = path.read_bytes()
                found.update(f"{root.name}/{name.as_posix()} {len(text)}\n".encode())
                found.update(text)
    return found.hexdigest()
