"""Before a resume: the newest checkpoint against the contract and the host (8.3)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlease.agent import resume, stores
from fairlease.agent.contracts import read
from fairlease_schemas import codec
from fairlease_schemas.contract import body, read_contract
from fairlease_schemas.job import End, Mismatch
from fairlease_schemas.orders import RunOrder
from tests.agent.bench import Bench, shell, until

pytestmark = pytest.mark.asyncio


def manifest(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - the fields of a manifest are of many types
    return {"attempt": 1, "step": 500, "complete": True, "world_size": 2, "gpu_model": "H100-sim", **fields}


def part(bench: Bench, number: int = 2, state: dict[str, Any] | None = None) -> RunOrder:
    made = bench.part("a", shell("echo ran"), checkpoint={"uri": "store:local/x"}, state=state)
    return replace(made, attempt=f"job-a-a{number}")


def left(bench: Bench, *manifests: dict[str, Any]) -> None:
    """Checkpoints that earlier attempts of the job left in its store."""
    place = bench.home.parent.parent / "stores/local/x/job-a"
    for number, one in enumerate(manifests):
        (place / str(number)).mkdir(parents=True)
        (place / str(number) / resume.MANIFEST).write_bytes(msgspec.json.encode(one))


@pytest.mark.parametrize(
    ("there", "asks", "wrong"),
    [
        pytest.param({"state": {"commit": "b"}}, {"commit": "a"}, ("commit", "a", "b"), id="another commit"),
        pytest.param({"state": {"data": "b"}}, {"data": "a", "rng": "r"}, ("data", "a", "b"), id="other data"),
        pytest.param({"state": {"world_size": 8}}, {"world_size": 16}, ("world_size", "16", "8"), id="another world"),
        pytest.param({"world_size": 4}, None, ("hosts", "2", "4"), id="another number of hosts"),
        pytest.param({"gpu_model": "A100"}, None, ("gpu_model", "H100-sim", "A100"), id="another GPU model"),
        pytest.param({"attempt": 3}, None, ("attempt", "2", "3"), id="state that is newer than this attempt"),
    ],
)
async def test_a_checkpoint_that_does_not_fit_is_refused_with_both_values(
    bench: Bench, there: dict[str, Any], asks: dict[str, Any] | None, wrong: tuple[str, str, str]
) -> None:
    # rule: 8.3
    left(bench, manifest(**there))
    second = part(bench, state=asks)
    bench.order(second)
    gone = await bench.gone(second)
    field, wanted, found = wrong
    assert (gone.end, gone.exit_code) == (End.START_FAILED, None)
    assert gone.mismatches == (Mismatch(field=field, wanted=wanted, found=found),)
    assert gone.detail == f"resume refused: {field} is {wanted} here and {found} in the checkpoint"
    assert bench.log(second) == ""


@pytest.mark.parametrize(
    ("there", "asks"),
    [
        pytest.param({}, None, id="all the same"),
        pytest.param({"state": {"commit": "a"}}, {"commit": "a", "data": "d"}, id="what one does not say"),
        pytest.param({"world_size": 4, "format": "dcp"}, None, id="a format that can be read at another size"),
        pytest.param({"world_size": 4, "resumable_on": {"elastic": True}}, None, id="a run that is elastic"),
        pytest.param(
            {"gpu_model": "A100", "resumable_on": {"gpu_types": ["H100-sim"]}}, None, id="a model that it can go on at"
        ),
        pytest.param({"state": {"commit": "b"}, "complete": False}, {"commit": "a"}, id="one that is not complete"),
    ],
)
async def test_a_checkpoint_that_fits_is_resumed(
    bench: Bench, there: dict[str, Any], asks: dict[str, Any] | None
) -> None:
    # rule: 8.3
    left(bench, manifest(**there))
    second = part(bench, state=asks)
    bench.order(second)
    assert (await bench.gone(second)).end is End.SUCCEEDED
    assert bench.log(second) == "ran\n"


async def test_a_manifest_of_nothing_but_brackets_is_passed_over(bench: Bench) -> None:
    left(bench, manifest())
    place = bench.home.parent.parent / "stores/local/x/job-a/bomb"
    place.mkdir()
    (place / resume.MANIFEST).write_bytes(b'{"x": ' + b"[" * 100_000)
    second = part(bench)
    bench.order(second)
    assert (await bench.gone(second)).end is End.SUCCEEDED


async def test_the_newest_is_what_counts_and_every_difference_is_told(bench: Bench) -> None:
    # rule: 8.3
    old, new = manifest(attempt=1, step=900), manifest(attempt=2, step=10, world_size=8, state={"commit": "b"})
    left(bench, old, new, {"what": "is this"})
    third = part(bench, 3, state={"commit": "a"})
    bench.order(third)
    gone = await bench.gone(third)
    assert [one.field for one in gone.mismatches] == ["commit", "hosts"]
    bench.restart()
    await until(lambda: len(bench.reports) >= 3, "it is up again")
    assert bench.directory(third).gone() is not None


async def test_a_store_that_hangs_holds_up_one_run_and_not_the_host(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    hangs, found = threading.Event(), resume.newest

    def newest(directory: Path) -> resume.Manifest | None:
        hangs.wait()
        return found(directory)

    monkeypatch.setattr(resume, "newest", newest)
    waiting, other = part(bench), bench.part("b", gpus=(1,))
    bench.order(waiting, other)
    assert (await bench.gone(other)).end is End.SUCCEEDED
    assert not bench.directory(waiting).path.exists()
    hangs.set()
    assert (await bench.gone(waiting)).end is End.SUCCEEDED


async def test_a_store_that_fails_for_a_while_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlease.agent.host._RETRY_S", 0.01)
    failures, made = [OSError(5, "Input/output error")] * 3, stores.environment

    def environment(*args: Any, **named: Any) -> dict[str, str]:  # noqa: ANN401 - passed on as they come
        if failures:
            raise failures.pop()
        return made(*args, **named)

    monkeypatch.setattr(stores, "environment", environment)
    second = part(bench)
    bench.order(second)
    assert (await bench.gone(second)).end is End.SUCCEEDED


async def test_the_state_of_a_contract_is_read_from_the_body_that_admission_stores() -> None:
    # rule: 1.9
    spec = {"budget": "b", "min_runtime": "1h", "timeout": "2h", "command": ["train"]}
    spec |= {"state": {"commit": "abc", "world_size": 8}, "checkpoint": {"uri": "store:a/b", "signal": "USR2"}}
    checked, problems = read_contract({"apiVersion": "fairlease/v1", "kind": "Job", "spec": spec})
    assert checked is not None, problems
    command = read(codec.canonical(body(checked)), codec.digest(body(checked)))
    assert command.state == {"commit": "abc", "world_size": 8}
    assert (command.checkpoint.signal, command.checkpoint.uri, command.resumable) == ("USR2", "store:a/b", True)


# beginning anew ------------------------------------------------------------------------------------------


def place_of(bench: Bench) -> Path:
    return bench.home.parent.parent / "stores/local/x/job-a"


async def test_a_clean_start_sets_aside_what_was_saved_and_resumes_nothing(bench: Bench) -> None:
    # rule: 8.3
    left(bench, manifest(state={"commit": "b"}))
    (place_of(bench) / "0/weights").write_bytes(b"weeks of work")
    second = replace(part(bench, state={"commit": "a"}), is_clean=True)
    bench.order(second)
    gone = await bench.gone(second)
    assert (gone.end, bench.log(second)) == (End.SUCCEEDED, "ran\n")
    beside = place_of(bench).with_name("job-a.before-a2")
    assert (beside / "0/weights").read_bytes() == b"weeks of work"
    assert list(place_of(bench).iterdir()) == []
    assert resume.newest(place_of(bench)) is None


async def test_an_agent_that_comes_back_sets_nothing_aside_again(bench: Bench) -> None:
    # rule: 8.3
    left(bench, manifest())
    wait = "while [ ! -e ../end ]; do sleep 0.01; done"
    second = replace(
        bench.part(
            "a",
            shell(f"echo new > $FAIRLEASE_CHECKPOINT_DIR/new; echo saved; {wait}"),
            checkpoint={"uri": "store:local/x"},
        ),
        attempt="job-a-a2",
        is_clean=True,
    )
    bench.order(second)
    await bench.printed(second, "saved")
    bench.restart()
    bench.order(second)
    assert (place_of(bench) / "new").read_text() == "new\n"
    (bench.directory(second).path / "end").touch()
    await bench.gone(second)


async def test_every_attempt_sets_aside_under_its_own_name_and_nothing_is_written_over(tmp_path: Path) -> None:
    # rule: 8.3
    place = tmp_path / "job-a"
    for number in (2, 3):
        place.mkdir(exist_ok=True)
        (place / "step").write_text(str(number))
        assert stores.set_aside(place, number) == tmp_path / f"job-a.before-a{number}"
    assert [(tmp_path / f"job-a.before-a{n}/step").read_text() for n in (2, 3)] == ["2", "3"]
    assert list(place.iterdir()) == []


async def test_of_the_hosts_of_a_gang_the_first_sets_aside_and_what_its_run_saves_stays(tmp_path: Path) -> None:
    # rule: 8.3
    place = tmp_path / "job-a"
    place.mkdir()
    (place / "old").touch()
    stores.set_aside(place, 2)
    (place / "new").touch()
    stores.set_aside(place, 2)
    assert sorted(path.name for path in place.iterdir()) == ["new"]


async def test_a_host_that_looked_before_the_first_one_moved_loses_nothing_of_the_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 8.3
    place = tmp_path / "job-a"
    place.mkdir()
    (place / "old").touch()
    rename = os.rename

    def late(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """The other host is through with all of it, and its run has saved, between our look and our move."""
        monkeypatch.undo()
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        place.mkdir()
        (place / "new").touch()
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", late)
    assert stores.set_aside(place, 2) == tmp_path / "job-a.before-a2"
    assert sorted(path.name for path in place.iterdir()) == ["new"]
    assert (tmp_path / "job-a.before-a2/old").exists()


async def test_a_place_that_is_gone_for_a_moment_is_made_again(tmp_path: Path) -> None:
    # rule: 8.3
    assert stores.set_aside(tmp_path / "job-a", 2) is None
    assert (tmp_path / "job-a").is_dir()


def loop(place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.symlink_to("x")


def store_loop(place: Path) -> None:
    place.parent.parent.mkdir()
    place.parent.symlink_to("local")


def file(place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.touch()


@pytest.mark.parametrize(
    ("path", "put"),
    [
        pytest.param("x", loop, id="a link to itself"),
        pytest.param("x", store_loop, id="a store that is a link to itself"),
        pytest.param("x", file, id="a file"),
        pytest.param("y" * 300, None, id="a name that no file system takes"),
        pytest.param("/".join(["y" * 200] * 30), None, id="a path that no file system takes"),
    ],
)
async def test_a_place_that_can_never_be_is_refused_at_once(
    bench: Bench, path: str, put: Callable[[Path], None] | None
) -> None:
    if put is not None:
        put(bench.home.parent.parent / "stores/local/x")
    part = bench.part("a", checkpoint={"uri": f"store:local/{path}"})
    bench.order(part)
    gone = await bench.gone(part)
    assert gone.end is End.START_FAILED
    assert gone.detail.startswith(("'store:local/", "store local"))


async def test_a_manifest_behind_a_link_is_none(bench: Bench) -> None:
    left(bench, manifest(gpu_model="A100"))
    place = bench.home.parent.parent / "stores/local/x/job-a"
    (place / "0" / resume.MANIFEST).rename(place / "elsewhere")
    (place / resume.MANIFEST).symlink_to("elsewhere")
    second = part(bench)
    bench.order(second)
    assert (await bench.gone(second)).end is End.SUCCEEDED
