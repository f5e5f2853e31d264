"""Starts a keeper: `python -I -S shim.py RUN_DIRECTORY`, the order on standard input.

A script named by its path, because `-I -S` (no site, no user's environment, a third of the start
time) hides our package; what it imports comes compiled from its cache, which a script never does.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from fairlease.agent.keeper import keep

    keep(sys.argv[1])
