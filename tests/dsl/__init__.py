"""Builders and a cell in memory, for tests that tell stories about the core."""

import pytest

pytest.register_assert_rewrite("tests.dsl.cell")  # so that a story that ends otherwise shows both endings
