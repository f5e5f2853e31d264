"""A small TOML file that an option names, read no further than anybody would write one."""

import tomllib
from pathlib import Path
from typing import Any, Final

from fairlease.cli.exits import CONTRACT, CommandError

_MAX_BYTES: Final = 64 * 1024


def toml_of(option: str, path: str, way_out: str) -> dict[str, Any]:
    """The tables of the file; CommandError 65 names the option, the file and the way out."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise CommandError(CONTRACT, f"{option} {path}: is larger than {_MAX_BYTES} bytes", way_out=way_out)
        return tomllib.loads(raw.decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CommandError(CONTRACT, f"{option} {path}: {error}", way_out=way_out) from error
