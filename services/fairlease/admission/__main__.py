"""`python -m fairlease.admission`: this service as a process, until SIGTERM."""

import sys

from fairlease.admission.app import NAME, define
from fairlease.runtime.serve import main

if __name__ == "__main__":
    sys.exit(main(NAME, define))
