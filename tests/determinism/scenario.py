"""Plays every golden story afresh and prints what came of it: `python -m tests.determinism.scenario`."""

import hashlib

import msgspec

from fairlease.figures.report import report_of
from tests.core.told import figures
from tests.dsl.cell import T0
from tests.golden.record import LOGS


def main() -> None:
    """One line a story: its name, the digest of its world, and the hashes of all its records and of its figures."""
    for name, story in LOGS.items():
        cell = story()
        report = msgspec.json.encode(report_of(figures(cell, cell.world.log_time_ms - T0)))
        print(name, cell.world.digest(), _sha256(b"".join(cell.records)), _sha256(report))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
