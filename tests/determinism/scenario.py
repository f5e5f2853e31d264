"""Plays every golden story afresh and prints what came of it: `python -m tests.determinism.scenario`."""

import hashlib

from tests.golden.record import LOGS


def main() -> None:
    """One line a story: its name, the digest of its world, and the hash of all its records."""
    for name, story in LOGS.items():
        cell = story()
        print(name, cell.world.digest(), hashlib.sha256(b"".join(cell.records)).hexdigest())


if __name__ == "__main__":
    main()
