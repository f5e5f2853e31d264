"""Code from a directory, by way of the bus, into the place where a job works."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlease.cli.packing import pack
from fairlease_schemas.ids import job_id
from tests.live import process
from tests.live.cell import Up, up_at
from tests.live.court import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

TERMS = ("submit", "--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("code") / "cell") as up:
        yield up


def project(root: Path, says: str) -> Path:
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "words").write_text(f"{says}\n")
    (root / "run.sh").write_text("#!/bin/sh\ncat lib/words; echo $FAIRLEASE_SOURCE; echo mine > lib/words\n")
    (root / "run.sh").chmod(0o755)
    return root


async def test_a_directory_is_what_an_array_of_jobs_runs_each_with_files_of_its_own(up: Up, tmp_path: Path) -> None:
    # rule: 1.13
    root = project(tmp_path / "project", "hello")
    words = (*TERMS, "--bundle", str(root), "--array", "3", "--request-id", "array", "--wait", "--", "./run.sh")
    code, _, said = await up.run(*words)
    assert code == 0, said
    for index in range(3):
        _, out, _ = await up.run("job", "logs", job_id("local", "team-a", f"array/{index}"))
        assert out == f"hello\n{pack(str(root)).bundle}\n"
    await up.judge()


async def test_code_is_fetched_also_by_an_agent_and_from_a_bus_that_were_killed(up: Up, tmp_path: Path) -> None:
    root = project(tmp_path / "project", "again")
    for victim in ("bus", "agent"):
        (pid,) = [pid for pid in up.parts()[1:] if process.is_part(pid, victim)]
        child = await up.spawn(*TERMS, "--bundle", str(root), "--wait", "--request-id", victim, "--", "./run.sh")

        async def is_handed_in(name: str = victim) -> bool:
            await up.journal.read()
            return bool(up.journal.of_job(job_id("local", "team-a", name), "job-admitted"))

        await eventually(is_handed_in, "it is admitted")
        process.kill(pid)
        _, told = await child.communicate()
        assert child.returncode == 0, told.decode()
    await up.judge()


async def test_code_that_is_not_on_the_bus_is_a_start_that_failed(up: Up) -> None:
    # rule: 1.13
    bundle = "sha256:" + "0" * 64
    code, _, said = await up.run(*TERMS, "--source-bundle", bundle, "--wait", "--", "true")
    assert (code, f"bundle {bundle}: account local has no such bundle on the bus" in said) == (206, True), said
    await up.judge()
