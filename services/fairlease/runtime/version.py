"""Which release of Fairlease this process runs."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version as it was installed; empty where only the sources are there."""
    try:
        return metadata.version("fairlease")
    except metadata.PackageNotFoundError:
        return ""
