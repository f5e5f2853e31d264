"""What a contract may say, as it is read at the edge: taken, or told with its rule (1.2 to 1.15)."""

from typing import Any

import pytest

from fairlease_schemas import codec
from fairlease_schemas.contract import Contract, body, read_contract, scheduling_fields
from fairlease_schemas.credential import kind_of
from fairlease_schemas.job import After, Array, Constraints, Request
from tests.dsl.cell import MINUTE, SECOND

LEAST = {"budget": "a", "min_runtime": "30m", "timeout": "2h", "command": ["python", "train.py"]}
GITHUB = "ghp_" + "a1" * 18
JOB = "job-" + "a" * 20


def written(**spec: object) -> dict[str, Any]:
    return {"apiVersion": "fairlease/v1", "kind": "Job", "spec": {**LEAST, **spec}}


def contract(**spec: object) -> Contract:
    found, problems = read_contract(written(**spec))
    assert found is not None, problems
    return found


def request(**spec: object) -> Request:
    return scheduling_fields(contract(**spec))


def kept(**spec: object) -> dict[str, Any]:
    """The spec of the canonical body."""
    found: dict[str, Any] = body(contract(**spec))["spec"]
    return found


def told(**spec: object) -> list[tuple[str, str]]:
    """(field, rule) of each problem; empty when it is a contract."""
    return [(problem.field, problem.rule) for problem in read_contract(written(**spec))[1]]


# sizes and constraints ------------------------------------------------------------------------------


def test_sizes_are_written_with_their_units_and_kept_in_mebibytes() -> None:
    # rule: 1.2
    asked = request(cpu_per_host=16, memory_per_host="128Gi", disk_per_host="2Ti")
    assert (asked.cpu_per_host, asked.memory_per_host_mib, asked.disk_per_host_mib) == (16, 131_072, 2_097_152)
    assert kept(memory_per_host="128Gi")["memory_per_host_mib"] == 131_072


@pytest.mark.parametrize("field", ["memory_per_host", "disk_per_host"])
@pytest.mark.parametrize("value", [64, "64", "64G", "64 Gi", "-1Gi", "0Mi", "1.5Gi", "9999999999Gi", "", "2048Ti"])
def test_a_size_that_is_none_is_refused(field: str, value: object) -> None:
    # rule: 1.2
    assert told(**{field: value}) == [(f"spec.{field}", "1.2")]


@pytest.mark.parametrize("value", [0, -1, 4_097, "8", 1.5, True])
def test_cores_are_a_whole_number(value: object) -> None:
    # rule: 1.2
    assert told(cpu_per_host=value) == [("spec.cpu_per_host", "1.2")]


def test_constraints_are_a_closed_set() -> None:
    # rule: 1.3
    asked = {"gpu_model": ["H100", "H200"], "min_gpu_memory": "80Gi", "labels": {"zone": "a"}, "same_block": True}
    assert request(constraints=asked).constraints == Constraints(
        gpu_models=("H100", "H200"), min_gpu_memory_mib=81_920, labels={"zone": "a"}, is_same_block=True
    )
    assert told(constraints={"rack": "r1"}) == [("spec.constraints.rack", "1.3")]


def test_constraints_that_ask_nothing_are_none() -> None:
    # rule: 1.3
    assert request(constraints={}).constraints is request(constraints=None).constraints is None
    assert kept(constraints={"same_block": False}) == kept()


@pytest.mark.parametrize(
    ("constraints", "field"),
    [
        pytest.param({"gpu_model": "H100"}, "gpu_model", id="a model that is no list"),
        pytest.param({"gpu_model": [""]}, "gpu_model.0", id="a model without a name"),
        pytest.param({"min_gpu_memory": 80}, "min_gpu_memory", id="memory without a unit"),
        pytest.param({"labels": {"Zone": "a"}}, "labels.Zone.[key]", id="a key in capitals"),
        pytest.param({"labels": {"zone": 1}}, "labels.zone", id="a number for a value"),
        pytest.param({"labels": {"zone": "a" * 64}}, "labels.zone", id="a long value"),
        pytest.param({"labels": {f"k{n}": "" for n in range(17)}}, "labels", id="too many labels"),
        pytest.param({"same_block": "yes"}, "same_block", id="a word for a truth"),
    ],
)
def test_a_constraint_that_is_none_is_refused(constraints: dict[str, object], field: str) -> None:
    # rule: 1.3
    assert told(constraints=constraints) == [(f"spec.constraints.{field}", "1.3")]


# checkpoints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/",
        "s3://my.bucket-1/runs/7b",
        "gs://bucket/a/b/",
        "az://container/user=ann/x:y@z,1+2",
        "store:scratch/runs/7b",
        "store:a/x",
    ],
)
def test_checkpoints_go_to_an_object_store(uri: str) -> None:
    # rule: 1.7
    assert kept(checkpoint={"uri": uri})["checkpoint"] == {"grace_ms": 30 * SECOND, "uri": uri}


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param("file:///checkpoints", id="a file"),
        pytest.param("http://host/x", id="a web server"),
        pytest.param("S3://bucket/x", id="a scheme in capitals"),
        pytest.param("s3:/bucket/x", id="half a scheme"),
        pytest.param("/checkpoints", id="a path"),
        pytest.param("s3://bucket", id="no path"),
        pytest.param("s3:///x", id="no bucket"),
        pytest.param("s3://B_/x", id="no name of a bucket"),
        pytest.param("s3://ann@bucket/x", id="a user"),
        pytest.param("s3://bucket/../x", id="a way out"),
        pytest.param("s3://bucket/a/./x", id="a dot"),
        pytest.param("s3://bucket/a//x", id="an empty part"),
        pytest.param("s3://bucket/%2e%2e/x", id="a hidden way out"),
        pytest.param("s3://bucket/x?X-Amz-Signature=1", id="a signed address"),
        pytest.param("s3://bucket/x#y", id="a fragment"),
        pytest.param("s3://bucket/x y", id="a space"),
        pytest.param("s3://bucket/x\\y", id="a backslash"),
        pytest.param("s3://bucket/x\n", id="a line break"),
        pytest.param("s3://bucket/x\u202e", id="text that turns around"),
        pytest.param("store:../x", id="a store that leads out"),
        pytest.param("store:scratch", id="a store without a path"),
        pytest.param("s3://bucket/" + "x" * 1_024, id="an endless path"),
        pytest.param(5, id="a number"),
    ],
)
def test_a_place_that_is_none_or_holds_a_secret_is_refused(uri: object) -> None:
    # rule: 1.7
    assert told(checkpoint={"uri": uri}) == [("spec.checkpoint.uri", "1.7")]


def test_a_password_in_a_place_is_a_secret() -> None:
    # rule: 1.13
    assert told(checkpoint={"uri": "s3://ann:hunter2@bucket/x"}) == [("spec.checkpoint.uri", "1.13")]


@pytest.mark.parametrize("signal", ["TERM", "USR1", "USR2", "none"])
def test_the_signal_is_one_of_four(signal: str) -> None:
    # rule: 1.7
    assert contract(checkpoint={"signal": signal}).spec.checkpoint.signal == signal


@pytest.mark.parametrize(
    ("checkpoint", "field"),
    [
        pytest.param({"signal": "KILL"}, ".signal", id="a signal that cannot be caught"),
        pytest.param({"signal": "usr1"}, ".signal", id="a signal in small letters"),
        pytest.param({"interval": "999ms"}, "", id="no time between checkpoints"),
        pytest.param({"interval": 20}, ".interval", id="a bare number"),
        pytest.param({"grace": None}, ".grace", id="no grace"),
    ],
)
def test_a_way_to_save_that_is_none_is_refused(checkpoint: dict[str, object], field: str) -> None:
    # rule: 1.7
    assert told(checkpoint=checkpoint) == [(f"spec.checkpoint{field}", "1.7")]


def test_decisions_read_the_interval_and_the_grace() -> None:
    # rule: 1.7
    asked = request(checkpoint={"interval": "20m", "grace": "2m"})
    assert (asked.checkpoint_interval_ms, asked.grace_ms) == (20 * MINUTE, 2 * MINUTE)
    assert request().checkpoint_interval_ms == 0


# what a resumed run must match ----------------------------------------------------------------------


def test_the_state_is_in_the_body_and_its_digest_in_the_log() -> None:
    # rule: 1.9
    state = {
        "commit": "5f1c0e8",
        "data": "sha256:1",
        "model": "7b",
        "runtime": "2.6",
        "world_size": 16,
        "rng": "seed 7",
    }
    assert kept(state=state)["state"] == state
    digest = request(state=state).state_digest
    assert digest == codec.digest(state)
    assert request(state={**state, "world_size": 8}).state_digest != digest
    assert request(state=dict(reversed(state.items()))).state_digest == digest


@pytest.mark.parametrize("state", [None, {}])
def test_no_state_has_no_digest(state: object) -> None:
    # rule: 1.9
    assert request(state=state).state_digest == ""


@pytest.mark.parametrize(
    ("state", "field"),
    [
        pytest.param({"commit": ""}, "commit", id="an empty fingerprint"),
        pytest.param({"data": "x" * 257}, "data", id="a long one"),
        pytest.param({"model": 7}, "model", id="a number for a text"),
        pytest.param({"world_size": 0}, "world_size", id="a world of none"),
        pytest.param({"world_size": "16"}, "world_size", id="a text for a number"),
        pytest.param({"seed": 1}, "seed", id="an unknown part"),
    ],
)
def test_a_state_that_is_none_is_refused(state: dict[str, object], field: str) -> None:
    # rule: 1.9
    assert told(state=state) == [(f"spec.state.{field}", "1.9")]


# arrays and dependencies ----------------------------------------------------------------------------


def test_arrays_and_dependencies_are_for_decisions() -> None:
    # rule: 1.11
    asked = request(array={"count": 3, "parallel": 2}, after=[{"job": JOB}, {"job": "job-" + "b" * 20, "when": "any"}])
    assert asked.array == Array(count=3, parallel=2)
    assert asked.after == (After(job=JOB), After(job="job-" + "b" * 20, when="any"))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"array": {}}, "spec.array.count", id="an array of unknown size"),
        pytest.param({"array": {"count": 0}}, "spec.array.count", id="an array of none"),
        pytest.param({"array": {"count": 201}}, "spec.array.count", id="an array beyond one record"),
        pytest.param({"array": {"count": 2, "parallel": 0}}, "spec.array.parallel", id="none at a time"),
        pytest.param({"array": {"count": 2, "parallel": 3}}, "spec.array.parallel", id="more at a time than there are"),
        pytest.param({"array": 3}, "spec.array", id="a bare number"),
        pytest.param({"after": [{"job": "job-1"}]}, "spec.after.0.job", id="no job's id"),
        pytest.param({"after": [{"job": JOB, "when": "failed"}]}, "spec.after.0.when", id="another condition"),
        pytest.param({"after": [{"job": JOB}, {"job": JOB, "when": "any"}]}, "spec.after", id="the same job twice"),
        pytest.param({"after": [JOB]}, "spec.after.0", id="a job without its key"),
        pytest.param({"after": [{"job": JOB}] * 33}, "spec.after", id="too many"),
    ],
)
def test_what_is_no_array_and_no_dependency_is_refused(spec: dict[str, object], field: str) -> None:
    # rule: 1.11
    assert told(**spec) == [(field, "1.11")]


# evaluations and labels -----------------------------------------------------------------------------


def test_the_evaluation_is_in_the_log_and_labels_are_in_the_body() -> None:
    # rule: 1.12
    spec = {"evaluation": "mmlu-2026", "labels": {"team/owner": "ann", "x": ""}}
    assert request(**spec) == request(evaluation="mmlu-2026")
    assert request(**spec).evaluation == "mmlu-2026"
    assert kept(**spec)["labels"] == spec["labels"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"evaluation": "MMLU 1"}, "evaluation", id="no name"),
        pytest.param({"labels": {"-x": "1"}}, "labels.-x.[key]", id="no key"),
        pytest.param({"labels": {"x": 1}}, "labels.x", id="a number"),
        pytest.param({"labels": {"x": "a" * 64}}, "labels.x", id="a long value"),
        pytest.param({"labels": {f"k{n}": "" for n in range(17)}}, "labels", id="too many"),
        pytest.param({"labels": {"x": "a\0"}}, "labels.x", id="NUL"),
    ],
)
def test_what_is_no_evaluation_and_no_label_is_refused(spec: dict[str, object], field: str) -> None:
    # rule: 1.12
    assert told(**spec) == [(f"spec.{field}", "1.12")]


# what runs, and secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "image", ["train", "lab/train:7", "ghcr.io/lab/train__x:v1.2", "host:5000/a/b@sha256:" + "a" * 64]
)
def test_an_image_may_have_its_command_in_itself(image: str) -> None:
    # rule: 1.13
    assert contract(command=None, image=image).spec.command is None
    assert kept(image=image)["image"] == image


def test_something_must_run() -> None:
    # rule: 1.13
    assert told(command=None) == [("spec.command", "1.13")]
    assert told(command=[]) == [("spec.command", "1.13")]


def test_a_terminal_is_kept_where_there_is_one() -> None:
    # rule: 1.17
    assert kept(terminal=True, lane="debug", min_runtime="15m")["terminal"] is True
    assert "terminal" not in kept(terminal=False)


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        pytest.param({}, "lane: debug", id="outside the debug lane"),
        pytest.param({"lane": "debug", "hosts": 2}, "one host", id="of a gang"),
        pytest.param({"lane": "debug", "array": {"count": 2}}, "one job", id="of an array"),
        pytest.param({"lane": "debug", "command": None, "image": "train"}, "a command", id="of an image alone"),
    ],
)
def test_a_terminal_that_cannot_be_is_told(spec: dict[str, object], limit: str) -> None:
    # rule: 1.17
    (problem,) = read_contract(written(terminal=True, **spec))[1]
    assert (problem.field, problem.rule, problem.limit) == ("spec.terminal", "1.17", limit)


@pytest.mark.parametrize(
    "source",
    [
        {"repo": "https://git.example.org/lab/train", "commit": "a" * 40},
        {"repo": "git@github.com:lab/train.git", "commit": "0" * 64},
        {"repo": "ssh://git@host:2222/lab/train", "commit": "a" * 40},
        {"repo": "file:///srv/git/train.git", "commit": "a" * 40},
        {"bundle": "sha256:" + "0" * 64},
    ],
)
def test_code_is_a_commit_or_a_bundle_by_its_digest(source: dict[str, str]) -> None:
    # rule: 1.13
    assert kept(source=source)["source"] == source


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"source": {}}, "source", id="no code"),
        pytest.param({"source": {"repo": "https://h/x"}}, "source", id="a repository at no commit"),
        pytest.param({"source": {"commit": "a" * 40}}, "source", id="a commit of nothing"),
        pytest.param({"source": {"repo": "https://h/x", "commit": "main"}}, "source.commit", id="a branch"),
        pytest.param({"source": {"repo": "https://h/x", "commit": "a" * 12}}, "source.commit", id="half a commit"),
        pytest.param({"source": {"repo": "http://h/x", "commit": "a" * 40}}, "source.repo", id="without encryption"),
        pytest.param({"source": {"repo": "file://h/x", "commit": "a" * 40}}, "source.repo", id="another's files"),
        pytest.param({"source": {"repo": "-oProxyCommand=x", "commit": "a" * 40}}, "source.repo", id="an option"),
        pytest.param({"source": {"bundle": "sha256:abc"}}, "source.bundle", id="half a digest"),
        pytest.param({"source": {"bundle": "sha1:" + "a" * 40}}, "source.bundle", id="another digest"),
        pytest.param({"image": "a b"}, "image", id="an image with a space"),
        pytest.param({"image": "Lab/Train"}, "image", id="an image in capitals"),
        pytest.param({"image": "a@sha256:1"}, "image", id="an image with half a digest"),
        pytest.param({"secrets": {"KEY": "hunter2"}}, "secrets.KEY", id="a secret itself"),
        pytest.param({"secrets": {"KEY": "secret:"}}, "secrets.KEY", id="a secret without a name"),
        pytest.param({"secrets": {"1K": "secret:x"}}, "secrets.1K.[key]", id="no name of a variable"),
    ],
)
def test_what_cannot_run_is_refused(spec: dict[str, object], field: str) -> None:
    # rule: 1.13
    assert told(**spec) == [(f"spec.{field}", "1.13")]


def test_a_secret_is_a_name_and_stands_in_one_place() -> None:
    # rule: 1.13
    assert kept(secrets={"WANDB_API_KEY": "secret:team/wandb-key"})["secrets"] == {
        "WANDB_API_KEY": "secret:team/wandb-key"
    }
    assert told(env={"KEY": "x"}, secrets={"KEY": "secret:x"}) == [("spec.secrets.KEY", "1.13")]


TOKENS = [
    pytest.param("AKIA" + "A1" * 8, "an AWS access key", id="AWS access key"),
    pytest.param("ASIA" + "A1" * 8, "an AWS access key", id="AWS session"),
    pytest.param("aws_secret_access_key = " + "a/" * 20, "an AWS secret key", id="AWS secret key"),
    pytest.param("--aws-key=1 AWS_SECRET_ACCESS_KEY=" + "a+" * 20, "an AWS secret key", id="AWS secret in a command"),
    *(pytest.param(f"gh{k}_" + "a1" * 18, "a GitHub token", id=f"GitHub gh{k}") for k in "opusr"),
    pytest.param("github_pat_" + "a1" * 11, "a GitHub token", id="GitHub, fine-grained"),
    pytest.param("glpat-" + "a1" * 10, "a GitLab token", id="GitLab"),
    pytest.param("hf_" + "aB" * 17, "a Hugging Face token", id="Hugging Face"),
    pytest.param("sk-" + "a1" * 24, "an API key", id="API key"),
    pytest.param("sk-proj-" + "a1" * 24, "an API key", id="API key of a project"),
    pytest.param("AIza" + "a1-" * 11 + "xx", "an API key", id="Google"),
    pytest.param("xoxb-" + "1" * 12, "a Slack token", id="Slack"),
    pytest.param("-----BEGIN PRIVATE KEY-----\nMII", "a private key", id="PKCS 8"),
    pytest.param("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key", id="OpenSSH"),
    pytest.param("-----BEGIN RSA PRIVATE KEY-----", "a private key", id="RSA"),
    pytest.param("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl", "a JSON Web Token", id="JWT"),
    pytest.param("postgres://ann:hunter2@db/x", "a password in a URL", id="a database"),
    pytest.param("redis://:hunter2@db", "a password in a URL", id="a password without a user"),
    pytest.param("https://" + "a1" * 20 + "@git.example.org/x", "a token in a URL", id="a token as a user"),
]


@pytest.mark.parametrize(("text", "kind"), TOKENS)
def test_a_known_form_of_secret_is_refused_by_its_kind_and_never_repeated(text: str, kind: str) -> None:
    # rule: 1.13
    assert kind_of(text) == kind
    for spec in (
        {"env": {"X": text}},
        {"command": ["sh", "-c", f"run --token {text} --fast"]},
        {"labels": {"x": text}},
        {"state": {"data": text}},
        {"tokn": text},
        {"timeout": text},
        {"image": text},
        {"lane": text},
        {"secrets": {"X": text}},
    ):
        contract, problems = read_contract(written(**spec))
        assert contract is None
        assert {problem.rule for problem in problems} == {"1.13"}
        assert all(kind in problem.way_out for problem in problems)
        assert text[8:] not in codec.canonical([list(map(str, p.__reduce__()[1])) for p in problems]).decode()
        assert all(text[:12] not in part for p in problems for part in (p.field, p.value, p.limit, p.way_out))


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
def test_variables_that_hold_nothing_but_secrets_hold_none_here(name: str) -> None:
    # rule: 1.13
    (problem,) = read_contract(written(env={name: "hunter2"}))[1]
    assert (problem.rule, "hunter2" in str(problem), name in problem.way_out) == ("1.13", False, True)
    assert told(env={name: ""}) == []


def test_a_secret_as_a_name_is_not_repeated_either() -> None:
    # rule: 1.13
    for spec in ({"env": {GITHUB: "x"}}, {GITHUB: 1}, {"labels": {GITHUB: 5}}):
        problems = read_contract(written(**spec))[1]
        assert {problem.rule for problem in problems} == {"1.13"}
        assert all(GITHUB not in str(problem) for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("5f1c0e8a" * 8, id="a digest"),
        pytest.param("YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY3ODkw", id="base64"),
        pytest.param("https://example.org/@scope/x?mail=a@b.c", id="an address with an at"),
        pytest.param("https://host:8443/a@b", id="a port"),
        pytest.param("https://x:$TOKEN@git.example.org", id="a variable for the password"),
        pytest.param("https://${TOKEN}@git.example.org", id="a variable for the token"),
        pytest.param("git@github.com:lab/train.git", id="a user of ssh"),
        pytest.param("ghp_short", id="the beginning of a token"),
        pytest.param("risk-" + "a" * 48, id="a word that ends like a key"),
        pytest.param("-----BEGIN PUBLIC KEY-----", id="a public key"),
        pytest.param("eyJhbGciOiJIUzI1NiJ9", id="a part of a token"),
        pytest.param("AKIA", id="four letters"),
    ],
)
def test_what_only_looks_random_is_let_be(text: str) -> None:
    # rule: 1.13
    assert kind_of(text) == ""
    assert told(env={"X": text}, command=["run", text]) == []


# the start limit, the digest ------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "is_taken"), [("1s", True), ("1h", True), ("999ms", False), ("1h1ms", False)])
def test_a_gang_has_from_a_second_to_an_hour_to_start(text: str, is_taken: bool) -> None:
    # rule: 1.15
    assert told(start_limit=text) == ([] if is_taken else [("spec.start_limit", "1.15")])


def test_the_digest_of_a_contract_that_uses_nothing_new_never_changes() -> None:
    # rule: 1.14
    plain = contract()
    digest = "93b11a09040b7a235586c2191cd8ca141cc0171cbd2f2642515c66f1f327adaf"
    assert codec.digest(body(plain)) == digest
    spelled = contract(
        after=[], labels={}, secrets={}, state={}, constraints={}, image=None, checkpoint={"signal": "TERM"}
    )
    assert codec.digest(body(spelled)) == digest
