"""How attempts end on real processes, and what comes after: evidence, leave to go on, a clean start (1.8, 8.3, 8.4)."""

import json
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from tests.live.cell import Up, up_at
from tests.live.desk import QUICK, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAVES = """
printf '{"step": 7, "complete": true}' > $FAIRLEASE_SAID_DIR/new
mv $FAIRLEASE_SAID_DIR/new $FAIRLEASE_SAID_DIR/checkpoint.json
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("ends") / "cell") as up:
        yield up


async def test_a_job_that_fails_leaves_its_last_words_where_job_show_finds_them(cell: Up) -> None:
    # rule: 8.4
    script = "echo HF_TOKEN=abcdefgh12; echo the end; exit 9"
    job = await cell.submit(Job("last-words", script, end="job-failed", code=9))
    await cell.over(job)
    code, out, err = await cell.run("job", "show", job, "--json")
    assert code == 0, err
    (kept,) = json.loads(out)["evidence"]
    assert (kept["is_there"], kept["exit_code"], kept["end"]) == (True, 9, "failed")
    assert kept["lines"] == ["HF_TOKEN=[redacted]", "the end"]
    assert kept["facts"]["free_memory_mib"] > 0
    (gone,) = cell.journal.of_job(job, "part-gone")
    assert gone["evidence"] == kept["digest"]


async def test_who_waits_for_a_job_that_fails_reads_its_last_words(cell: Up) -> None:
    # rule: 8.4
    terms = ("--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h", "--request-id", "waited")
    job = Job("waited", end="job-failed", code=4)
    cell.jobs[job.id] = job
    code, _, err = await cell.run("submit", *terms, "--wait", "--", "sh", "-c", "echo out of luck; exit 4")
    assert code == 4
    assert err.endswith("it printed last:\n  | out of luck\n")


async def test_a_job_that_has_saved_itself_may_leave_and_go_on(cell: Up) -> None:
    # rule: 1.8
    script = f"test $FAIRLEASE_ATTEMPT_NUMBER = 1 || exit 0; {SAVES}exit 85"
    job = await cell.submit(Job("goes-on", script))
    await cell.over(job)
    assert [one["end"] for one in cell.journal.of_job(job, "attempt-ended")] == ["failed", "succeeded"]
    (requeued,) = cell.journal.of_job(job, "job-requeued")
    assert (requeued.get("counts_as_retry", False), requeued["backoff_ms"]) == (False, QUICK.retry_backoff_ms)


async def test_a_job_whose_checkpoint_does_not_fit_begins_anew_and_nothing_is_lost(cell: Up) -> None:
    # rule: 8.3
    policy = msgspec.structs.replace(QUICK, on_resume_refused="restart")
    await cell.answered("change-policy", {"name": "restarts", "policy": msgspec.to_builtins(policy)})
    manifest = '{"attempt": 1, "step": 7, "complete": true, "state": {"commit": "b"}}'
    saves = f"printf '{manifest}' > $FAIRLEASE_CHECKPOINT_DIR/fairlease-manifest.json; exit 1"
    script = f'test $FAIRLEASE_ATTEMPT_NUMBER = 1 || exec test -z "$(ls $FAIRLEASE_CHECKPOINT_DIR)"; {saves}'
    job = Job("anew", script, max_retries=1)
    body = cell.body(job)
    body["contract"]["spec"]["checkpoint"]["uri"] = "store:local/runs"
    body["contract"]["spec"]["state"] = {"commit": "a"}
    cell.jobs[job.id] = job
    await cell.answered("submit-job", body)
    await cell.over(job.id)
    ends = [one["end"] for one in cell.journal.of_job(job.id, "attempt-ended")]
    assert ends == ["failed", "resume-refused", "succeeded"]
    beside = cell.home / "stores/local/runs" / f"{job.id}.before-a3"
    assert json.loads((beside / "fairlease-manifest.json").read_text()) == json.loads(manifest)
