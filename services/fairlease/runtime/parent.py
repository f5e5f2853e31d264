"""A child that ends with its parent, however the parent ends.

Without it, a supervisor that was killed would leave a headless cell behind, and the next one could
not take its place. Jobs are not children in this sense: they go on, and the agent finds them again.
"""

import ctypes
import os
import signal
from collections.abc import Mapping
from typing import Final

PARENT_VARIABLE: Final = "FAIRLEASE_PARENT"
_PR_SET_PDEATHSIG: Final = 1


def follow(env: Mapping[str, str]) -> None:
    """Ask the kernel for SIGTERM when the parent named in FAIRLEASE_PARENT is gone; leave when it is already."""
    parent = env.get(PARENT_VARIABLE, "")
    if not parent.isdigit():
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        raise SystemExit(f"the supervisor {parent} is gone: nothing to serve")
