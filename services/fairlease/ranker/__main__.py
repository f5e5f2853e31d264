"""`python -m fairlease.ranker`: this service as a process, until SIGTERM."""

import asyncio
import sys

from fairlease.ranker.app import NAME, define
from fairlease.runtime.serve import serve
from fairlease.runtime.settings import read_settings

if __name__ == "__main__":
    sys.exit(asyncio.run(serve(read_settings(NAME), define)))
