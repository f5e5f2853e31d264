"""The patrol itself: it sees what it is there for."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.court import eventually
from tests.live.patrol import Patrol


@contextmanager
def _process_of(home: Path, attempt: str, gpus: str) -> Iterator[None]:
    env = {
        "STARTS": str(home),
        "FAIRLEASE_ATTEMPT": attempt,
        "FAIRLEASE_HOST": "host-001",
        "CUDA_VISIBLE_DEVICES": gpus,
    }
    child = subprocess.Popen(["/bin/sleep", "60"], env=env)
    try:
        yield
    finally:
        child.kill()
        child.wait()


async def test_two_attempts_on_one_gpu_are_found_and_two_on_two_are_not(tmp_path: Path) -> None:
    patrol = Patrol(tmp_path)

    def seen(count: int) -> bool:
        patrol.look()
        return len(patrol.last_ms) == count

    with _process_of(tmp_path, "job-a-a1", "GPU-0,GPU-1"), _process_of(tmp_path, "job-b-a1", "GPU-2"):
        await eventually(lambda: seen(2), "both are seen")
        assert patrol.findings == []
        with _process_of(tmp_path, "job-c-a1", "GPU-1"):
            await eventually(lambda: seen(3), "the third is seen")
            assert all("GPU-1" in finding and "job-b" not in finding for finding in patrol.findings)
            assert patrol.findings
