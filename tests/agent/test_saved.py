"""Checkpoints: what a job says is saved reaches the bus once, in order, and before its end."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import fairlease_sdk
from fairlease.agent import layout, saved, stores
from fairlease.agent.questions import Progress, progress
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import CheckpointDone, RunGone
from tests.agent.bench import Bench, python, shell, until

pytestmark = pytest.mark.asyncio

SERVICES = str(Path(fairlease_sdk.__file__).parents[1])
SDK = f"import os, sys, time; sys.path.append({SERVICES!r}); import fairlease_sdk as fairlease\n"
SAVES = SDK + "open('w', 'w').write('x'); fairlease.checkpoint_done(7, ['w'])\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "EVERY_S", 0.02)


def steps(bench: Bench, part: RunOrder) -> list[int]:
    return [report.step for report in bench.of(part, CheckpointDone)]


def say(bench: Bench, part: RunOrder, **manifest: object) -> None:
    path = bench.directory(part).path / layout.SAID / layout.CHECKPOINT
    layout.write_whole(str(path), msgspec.json.encode({"complete": True, **manifest}), is_durable=False)


async def test_a_checkpoint_is_reported_with_its_step_and_the_digest_of_its_manifest(bench: Bench) -> None:
    # rule: 8.2
    part = bench.part("a", python(SAVES + "print('ready', flush=True); time.sleep(1000)"))
    bench.order(part)
    await until(lambda: steps(bench, part), "it is reported")
    manifest = (bench.directory(part).path / layout.WORK / "fairlease-manifest.json").read_bytes()
    digest = bench.directory(part).acked_checkpoint()
    assert bench.of(part, CheckpointDone) == [
        CheckpointDone(attempt=part.attempt, token=part.token, step=7, digest=digest, is_bound=True)
    ]
    assert digest == hashlib.sha256(manifest).hexdigest()
    said = msgspec.json.decode(manifest)
    assert (said["job"], said["attempt"], said["step"], said["world_size"]) == (part.job, 1, 7, 2)
    assert [entry["path"] for entry in said["files"]] == ["w"]


@pytest.mark.parametrize(
    ("says", "is_bound"),
    [
        pytest.param({}, True, id="nothing"),
        pytest.param({"format": "pt"}, True, id="a format of one place"),
        pytest.param({"format": "dcp"}, False, id="a format that reshards"),
        pytest.param({"resumable_on": {"elastic": True}}, False, id="a run that is elastic"),
        pytest.param({"resumable_on": {"gpu_types": ["L40S"]}}, False, id="other models that it can go on at"),
        pytest.param({"format": 7, "resumable_on": None}, True, id="what nobody can read"),
    ],
)
async def test_a_checkpoint_is_reported_with_whether_it_can_be_read_elsewhere(
    bench: Bench, says: dict[str, object], is_bound: bool
) -> None:
    # rule: 8.3
    part = bench.part("a", shell("echo ready; sleep 1000"))
    bench.order(part)
    await bench.printed(part, "ready")
    say(bench, part, step=3, **says)
    await until(lambda: steps(bench, part), "it is reported")
    (report,) = bench.of(part, CheckpointDone)
    assert (report.step, report.is_bound) == (3, is_bound)


async def test_what_is_saved_at_the_very_end_is_reported_before_the_end(bench: Bench) -> None:
    # rule: 8.2
    part = bench.part("a", python(SAVES + "sys.exit(85)"))
    bench.order(part)
    gone = await bench.gone(part)
    assert gone.exit_code == 85
    assert bench.reports.index(bench.of(part, CheckpointDone)[0]) < bench.reports.index(gone)
    assert steps(bench, part) == [7]


async def test_a_job_saves_itself_when_it_is_asked_to_stop(bench: Bench) -> None:
    # rule: 8.1 8.2
    wait = "print('ready', flush=True)\nwhile not fairlease.preempted(): time.sleep(0.01)\n"
    told = "print(fairlease.stop_reason(), 0 < fairlease.grace_left_ms() <= 60000)\n"
    part = bench.part("a", python(SDK + wait + told + SAVES), checkpoint={"signal": "none"})
    bench.order(part)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part, grace_ms=60_000, reason="preempted"))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 0)
    assert bench.log(part) == "ready\npreempted True\n"
    assert steps(bench, part) == [7]


async def test_each_checkpoint_is_reported_once_also_over_a_restart(bench: Bench) -> None:
    # rule: 8.2
    part = bench.part("a", shell("echo ready; sleep 1000"))
    bench.order(part)
    await bench.printed(part, "ready")
    say(bench, part, step=1)
    await until(lambda: steps(bench, part) == [1], "the first")
    bench.restart()
    say(bench, part, step=2)
    await until(lambda: steps(bench, part) == [1, 2], "the second, and not the first again")
    say(bench, part, step=2)
    say(bench, part, step=3)
    await until(lambda: steps(bench, part) == [1, 2, 3], "what was only written again is not news")


async def test_while_the_bus_is_away_only_the_newest_waits_and_the_end_comes_after_it(bench: Bench) -> None:
    # rule: 8.2
    part = bench.part("a", shell("echo ready; while [ ! -e ../end ]; do sleep 0.01; done"))
    bench.order(part)
    await bench.printed(part, "ready")
    await bench.started(part)
    bench.is_bus_there = False
    say(bench, part, step=1)
    await until(lambda: bench.host._checkpoints._on_the_way, "the first is on its way")
    for step in range(2, 50):
        say(bench, part, step=step)
    (bench.directory(part).path / "end").touch()
    await until(lambda: bench.directory(part).gone() is not None, "it ends")
    bench.is_bus_there = True
    await bench.gone(part)
    assert steps(bench, part) == [1, 49]
    assert isinstance(bench.reports[-1], RunGone)


def garbage(path: Path) -> None:
    path.write_bytes(b"{")


def brackets(path: Path) -> None:
    """Deeper than any reader goes, in a field that nobody knows."""
    path.write_bytes(b'{"complete": true, "step": 5, "x": ' + b"[" * 100_000)


def huge(path: Path) -> None:
    path.write_bytes(b" " * (layout.MOST_BYTES + 1))


def link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(msgspec.json.encode({"complete": True, "step": 5}))
    path.symlink_to(target)


def incomplete(path: Path) -> None:
    path.write_bytes(msgspec.json.encode({"complete": False, "step": 5}))


def negative(path: Path) -> None:
    path.write_bytes(msgspec.json.encode({"complete": True, "step": -5}))


@pytest.mark.parametrize("write", [garbage, brackets, huge, link, os.mkfifo, Path.mkdir, incomplete, negative])
async def test_what_is_no_manifest_is_not_reported_and_harms_nobody(
    bench: Bench, write: Callable[[Path], None]
) -> None:
    part = bench.part("a", shell("echo ready; while [ ! -e ../end ]; do sleep 0.01; done"))
    bench.order(part)
    await bench.printed(part, "ready")
    path = bench.directory(part).path / layout.SAID / layout.CHECKPOINT
    write(path)
    (bench.directory(part).path / "end").touch()
    assert (await bench.gone(part)).end is End.SUCCEEDED
    assert steps(bench, part) == []


# how far they are ----------------------------------------------------------------------------------
async def test_what_a_job_says_of_its_progress_is_told_to_who_asks(bench: Bench) -> None:
    part = bench.part("a", python(SDK + "fairlease.progress(3, 9, loss=0.5)"))
    silent = bench.part("b", gpus=(1,))
    bench.order(part, silent)
    for one in (part, silent):
        await bench.gone(one)
    said = [progress(bench.host, msgspec.json.encode({"attempt": one.attempt})) for one in (part, silent)]
    assert said == [Progress(step=3, total=9, figures={"loss": 0.5}), Progress()]


@pytest.mark.parametrize("write", [garbage, brackets, huge, link, os.mkfifo, Path.mkdir])
async def test_what_is_no_progress_is_told_as_a_problem(bench: Bench, write: Callable[[Path], None]) -> None:
    part = bench.part("a")
    bench.order(part)
    await bench.gone(part)
    write(bench.directory(part).path / layout.SAID / layout.PROGRESS)
    told = progress(bench.host, msgspec.json.encode({"attempt": part.attempt}))
    assert told.step is None
    assert "cannot be read" in told.problem


@pytest.mark.parametrize(
    ("asked", "why"), [(b"{", "ask"), (b"[" * 5_000, "ask"), (b'{"attempt":"x"}', "no run x on host-001")]
)
async def test_a_question_about_nothing_is_answered_in_words(bench: Bench, asked: bytes, why: str) -> None:
    assert why in progress(bench.host, asked).problem


# where they go -------------------------------------------------------------------------------------
PLACE = 'dir="$FAIRLEASE_CHECKPOINT_DIR"; echo "$FAIRLEASE_CHECKPOINT_URI $dir"; [ -z "$dir" ] || touch "$dir/x"'


async def test_a_store_is_a_directory_of_the_job_and_the_same_for_all_its_attempts(bench: Bench) -> None:
    parts = [bench.part("a", shell(PLACE), checkpoint={"uri": "store:local/runs/big"})]
    parts.append(msgspec.structs.replace(parts[0], attempt="job-a-a2"))
    for part in parts:
        bench.order(part)
        await bench.gone(part)
    place = bench.home.parent.parent / "stores/local/runs/big/job-a"
    assert [bench.log(part) for part in parts] == [f"store:local/runs/big {place}\n"] * 2
    assert (place / "x").exists()


async def test_another_place_is_told_as_it_is(bench: Bench) -> None:
    part = bench.part("a", shell(PLACE), checkpoint={"uri": "s3://vision/sweep"})
    bench.order(part)
    await bench.gone(part)
    assert bench.log(part) == "s3://vision/sweep \n"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        pytest.param("store:../x/", "names no store", id="no name"),
        pytest.param("store:local/../../etc", "names no store", id="a path that climbs"),
        pytest.param("store:local/out", "leads out of its store", id="a link that leads out"),
        pytest.param("store:local/file", "Not a directory", id="a file in the way"),
    ],
)
async def test_a_place_outside_its_store_is_a_failed_start(bench: Bench, tmp_path: Path, uri: str, why: str) -> None:
    store = bench.home.parent.parent / "stores/local"
    store.mkdir(parents=True)
    (store / "out").symlink_to(tmp_path)
    (store / "file").touch()
    part = bench.part("a", shell(PLACE), checkpoint={"uri": uri})
    bench.order(part)
    gone = await bench.gone(part)
    assert gone.end is End.START_FAILED
    assert why in gone.detail
    assert not (tmp_path / part.job).exists()


async def test_a_store_that_a_real_host_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(stores.StoreRefused, match="store shared is not on this host: mount or link it at"):
        stores.environment("store:shared/a", "job-a", tmp_path, can_make=False)
    (tmp_path / "shared").mkdir()
    told = stores.environment("store:shared/a", "job-a", tmp_path, can_make=False)
    assert told["FAIRLEASE_CHECKPOINT_DIR"] == str(tmp_path / "shared/a/job-a")
