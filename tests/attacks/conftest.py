"""One bus for each module of attacks: what an attack leaves behind is what the next one finds."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.attacks.bench import Bus, bus_at


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    async with bus_at(tmp_path_factory.mktemp("attacks") / "home") as bus:
        yield bus
