"""A small TOML file that an option names, read no further than anybody would write one."""

import tomllib
from typing import Any, Final

from fairlease.cli.exits import CONTRACT, CommandError
from fairlease.runtime import plain_file
from fairlease.runtime.plain_file import why

_MAX_BYTES: Final = 64 * 1024


def toml_of(option: str, path: str, way_out: str) -> dict[str, Any]:
    """The tables of the file; CommandError 65 names the option, the file and the way out."""
    try:
        return tomllib.loads(plain_file.text(path, _MAX_BYTES))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CommandError(CONTRACT, f"{option} {path}: {why(error)}", way_out=way_out) from error
