"""How a law is put to the test: so many random examples, and on failure the seed and the way to rerun it."""

import os
import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

T = TypeVar("T")

SEED = int(os.environ.get("FAIRLEASE_SEED") or random.SystemRandom().randrange(2**32))
MANY = int(os.environ.get("FAIRLEASE_LAW_EXAMPLES") or 5_000)

at_length = pytest.mark.parametrize("examples", [200, pytest.param(MANY, id="many", marks=pytest.mark.long)])
"""Every law is a test twice: an ordinary one of 200 examples, and one for `make test-long`."""


def examine(law: Callable[[T], None], anything: st.SearchStrategy[T], examples: int, turn: int = 0) -> None:
    """Fails with the smallest example that breaks the law, its seed, and the command that finds it again.

    Another `turn` has other examples, of the same seed.
    """
    quiet = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    test = seed(SEED + turn)(quiet(given(anything)(law)))
    try:
        test()
    except BaseException as error:
        name = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        error.add_note(f"again: FAIRLEASE_SEED={SEED} FAIRLEASE_LAW_EXAMPLES={MANY} pytest '{name}'")
        raise
