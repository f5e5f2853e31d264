"""Contract bodies: believed by digest; and the environment made of them."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest

from fairlease.agent.contracts import Code, Command, ContractRefused, environment, fetch, read
from fairlease.runtime.errors import BusAway
from fairlease_schemas import codec
from fairlease_schemas.contract import body, read_contract
from tests.agent.bench import Bench, contract, shell

MANIFEST = {
    "apiVersion": "fairlease/v1",
    "kind": "Job",
    "spec": {"budget": "b", "min_runtime": "1h", "timeout": "2h", "command": ["train", "--all"], "env": {"A": "1"}},
}


def test_the_body_that_admission_stores_is_read() -> None:
    checked, problems = read_contract(MANIFEST)
    assert checked is not None, problems
    data = codec.canonical(body(checked))
    assert read(data, codec.digest(body(checked))) == Command(("train", "--all"), {"A": "1"})


def test_a_job_of_an_array_learns_its_index_and_how_many_there_are(bench: Bench) -> None:
    spec = {**MANIFEST["spec"], "array": {"count": 3, "parallel": 2}}  # type: ignore[dict-item]  # MANIFEST holds a mapping there
    checked, problems = read_contract({**MANIFEST, "spec": spec})
    assert checked is not None, problems
    command = read(codec.canonical(body(checked)), codec.digest(body(checked)))
    order = msgspec.structs.replace(bench.part("a"), array_index=0)
    env = environment(order, {**command.env, "FAIRLEASE_ARRAY_INDEX": "9"}, bench.devices, {})
    assert (env["A"], env["FAIRLEASE_ARRAY_INDEX"], env["FAIRLEASE_ARRAY_COUNT"]) == ("1", "0", "3")
    alone = environment(bench.part("a"), {}, bench.devices, {})
    assert not [name for name in alone if "ARRAY" in name]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"bundle": "sha256:" + "a" * 64}, "sha256:" + "a" * 64),
        ({"repo": "https://git.example.org/lab/train", "commit": "b" * 40}, "b" * 40),
    ],
)
def test_a_job_learns_which_code_it_runs_and_its_contract_cannot_say_otherwise(
    source: dict[str, str], name: str
) -> None:
    # rule: 1.13
    spec = {**MANIFEST["spec"], "source": source, "env": {"FAIRLEASE_SOURCE": "forged"}}  # type: ignore[dict-item]  # MANIFEST holds a mapping there
    checked, problems = read_contract({**MANIFEST, "spec": spec})
    assert checked is not None, problems
    command = read(codec.canonical(body(checked)), codec.digest(body(checked)))
    assert command.source == Code(**source)
    assert command.env == {"FAIRLEASE_SOURCE": name}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"{", "cannot be read", id="no JSON"),
        pytest.param(b'{"spec":{}}', "missing required field `command`", id="no command"),
        pytest.param(b'{"spec":{"command":[]}}', "has no command", id="an empty command"),
        pytest.param(b'{"spec":{"command":["a",1]}}', "Expected `str`, got `int`", id="a number in it"),
    ],
)
def test_a_body_that_is_none_is_refused_in_words(data: bytes, why: str) -> None:
    with pytest.raises(ContractRefused, match=why):
        read(data, hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("more", "what"),
    [
        pytest.param({"image": "ghcr.io/lab/train:7"}, "image", id="an image"),
        pytest.param({"secrets": {"KEY": "secret:wandb"}}, "secrets", id="a secret"),
        pytest.param({"image": "train", "command": None}, "image", id="an image alone"),
    ],
)
def test_what_plain_processes_cannot_give_is_not_left_out_in_silence(more: dict[str, object], what: str) -> None:
    checked, problems = read_contract({**MANIFEST, "spec": {**MANIFEST["spec"], **more}})  # type: ignore[dict-item]  # MANIFEST holds a mapping there
    assert checked is not None, problems
    data = codec.canonical(body(checked))
    with pytest.raises(ContractRefused, match=f"asks for {what}"):
        read(data, codec.digest(body(checked)))


def test_another_body_than_the_granted_one_is_refused() -> None:
    _, data = contract(["rm"])
    with pytest.raises(ContractRefused, match="the grant names 00"):
        read(data, "00" * 32)


@pytest.mark.asyncio
async def test_a_body_is_waited_for_while_the_bus_is_away_and_a_while_when_it_is_behind() -> None:
    digest, data = contract(["train"])
    answers = [BusAway("cut"), None, data]

    async def last(asked: str) -> bytes | None:
        found = answers.pop(0)
        if isinstance(found, BusAway):
            raise found
        return found

    assert (await fetch(last, digest)).command == ("train",)


@pytest.mark.asyncio
async def test_a_body_that_never_comes_is_refused() -> None:
    async def last(asked: str) -> bytes | None:
        return None

    with pytest.raises(ContractRefused, match="no contract body"):
        await fetch(last, "00" * 32, patience_s=0)


@pytest.mark.asyncio
async def test_a_job_has_the_contracts_environment_the_grants_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEASE_URL", "nats://secret@bus")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("TMPDIR", raising=False)
    wished = {"A": "1=2", "HOME": "/home/job", "CUDA_VISIBLE_DEVICES": "all", "FAIRLEASE_TOKEN": "forged"}
    part = bench.part("a", ("env",), gpus=(3, 1), env=wished)
    bench.order(part)
    await bench.gone(part)
    seen = dict(line.split("=", 1) for line in bench.log(part).splitlines())
    assert seen.pop("PATH")
    assert seen == {
        "LANG": "C.UTF-8",
        "HOME": "/home/job",
        "A": "1=2",
        "CUDA_VISIBLE_DEVICES": "GPU-sim-host-001-3,GPU-sim-host-001-1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-sim-host-001-3,GPU-sim-host-001-1",
        "FAIRLEASE_SIMULATED": "1",
        "FAIRLEASE_JOB": "job-a",
        "FAIRLEASE_ATTEMPT": "job-a-a1",
        "FAIRLEASE_ATTEMPT_NUMBER": "1",
        "FAIRLEASE_TOKEN": "1-7-0",
        "FAIRLEASE_HOST": "host-001",
        "FAIRLEASE_GPU_MODEL": "H100-sim",
        "FAIRLEASE_RANK": "0",
        "FAIRLEASE_WORLD_SIZE": "2",
        "FAIRLEASE_HOSTS": "host-001,host-002",
        "NNODES": "2",
        "NODE_RANK": "0",
        "FAIRLEASE_PREEMPT_FILE": str(bench.directory(part).preempt_file),
        "FAIRLEASE_SAID_DIR": str(bench.directory(part).path / "said"),
    }


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda data: data.replace(b"true", b"evil"), "the grant names", id="changed on the way"),
        pytest.param(lambda data: None, "no contract body", id="erased"),
    ],
)
async def test_a_run_without_its_own_contract_is_a_failed_start(
    bench: Bench, change: Callable[[bytes], bytes | None], why: str
) -> None:
    part = bench.part("a", shell("true"))
    changed = change(bench.bodies.pop(part.digest))
    if changed is not None:
        bench.bodies[part.digest] = changed
    bench.patience_s = 0
    bench.order(part)
    gone = await bench.gone(part)
    assert gone.end == "start-failed"
    assert why in gone.detail
