"""`python -m fairlease` is the `fairlease` command."""

import sys

from fairlease.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
