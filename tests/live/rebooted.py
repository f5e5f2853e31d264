"""An agent that finds another boot id than the kernel's: the machine that it is on was started anew.

    python -m tests.live.rebooted FILE serve agent ...

FILE holds the id. Everything else is `python -m fairlease`.
"""

import sys
from pathlib import Path

from fairlease.agent import process
from fairlease.cli.main import main

if __name__ == "__main__":
    process._BOOT_ID = Path(sys.argv.pop(1))  # type: ignore[misc] # as a machine does once
    sys.exit(main())
