"""Nothing is iterated in hash order: two processes with other hash seeds write the same log."""

import os
import subprocess
import sys

from tests.golden.record import LOGS


def played(hash_seed: str) -> list[str]:
    """What `tests.determinism.scenario` prints in a process with this seed."""
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.determinism.scenario"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_two_hash_seeds_give_the_same_worlds_and_the_same_bytes() -> None:
    one, other = played("1"), played("2")
    assert one == other
    assert [line.split()[0] for line in one] == list(LOGS)
