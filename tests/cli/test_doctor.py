import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.exits import FAILED, OK
from fairlease.runtime import keys
from fairlease_schemas.explain import Health, HostRow, HostsView
from fairlease_schemas.subjects import SERVICES
from tests.cli.cell import ACCOUNTS, AS_OF, Cell

ACCOUNT = ACCOUNTS[0]


def health(service: str, *, is_ready: bool = True, release: str = "", fold: str = "v", port: int = 0) -> Health:
    return Health(
        service=service,
        replica="a",
        pid=7,
        is_ready=is_ready,
        position=42,
        records_written=1,
        moved=0,
        fold_version=fold,
        version=release,
        metrics_port=port,
    )


@pytest.fixture
def healthy(cell: Cell) -> Cell:
    cell.plan.health = {service: health(service) for service in SERVICES}
    cell.plan.replies["hosts"] = HostsView(rows=(), as_of=AS_OF)
    return cell


def test_a_cell_that_is_well_is_0(healthy: Cell) -> None:
    seen = healthy.run("doctor")
    assert (seen.code, seen.out.splitlines()[-1]) == (OK, "all is well")
    checks = json.loads(healthy.run("doctor", "--json").out)["checks"]
    here, there = ["python", "config", "key", "disk", "devices"], ["bus", "streams", "inbox", "clock"]
    assert [check["name"] for check in checks] == [*here, *there, *SERVICES, "versions", "agents"]
    assert all(check["is_ok"] for check in checks)


def test_a_service_that_is_missing_or_behind_is_named_with_the_mend(healthy: Cell) -> None:
    del healthy.plan.health["ranker"]
    healthy.plan.health["ledger"] = health("ledger", is_ready=False)
    seen = healthy.run("doctor", "--quiet")
    assert seen.code == FAILED
    assert [line.partition(":")[0] for line in seen.out.splitlines()] == ["ledger", "ranker"]
    assert "fairlease serve ranker" in seen.out


def test_an_account_without_an_inbox_is_named(healthy: Cell) -> None:
    seen = healthy.run("doctor", "--account", "nobody")
    assert (seen.code, "start it again with `fairlease up --account nobody`" in seen.out) == (FAILED, True)


def test_streams_that_are_missing_are_named(healthy: Cell) -> None:
    checks = json.loads(healthy.run("doctor", "--json", FAIRLEASE_CELL="other").out)["checks"]
    streams = next(check for check in checks if check["name"] == "streams")
    assert (streams["is_ok"], "FL_OTHER_LOG" in streams["found"]) == (False, True)


def host(name: str, **more: object) -> HostRow:
    plain: dict[str, Any] = {
        "host": name,
        "pool": "h100",
        "model": "H100",
        "block": "b1",
        "gpus": 8,
        "free_gpus": 8,
        "is_simulated": True,
        "holds": (),
        "attempts": (),
    }
    return HostRow(**{**plain, **more})


def agents(cell: Cell, *rows: HostRow) -> tuple[int, dict[str, tuple[bool, str]]]:
    """The exit code, and what is said of the agents of these hosts."""
    cell.plan.replies["hosts"] = HostsView(rows=rows, as_of=AS_OF)
    seen = cell.run("doctor", "--json")
    checks = {check["name"]: (check["is_ok"], check["found"]) for check in json.loads(seen.out)["checks"]}
    return seen.code, {name: check for name, check in checks.items() if name.startswith("agent")}


def test_an_agent_that_answers_is_well_and_one_that_was_never_heard_says_so(healthy: Cell) -> None:
    healthy.renew("host-1")
    assert agents(healthy, host("host-1"), host("host-2")) == (
        OK,
        {
            "agents": (True, "2 hosts registered, 2 well"),
            "agent host-1": (True, "answers, heard just now"),
            "agent host-2": (True, "answers, never heard"),
        },
    )


def test_a_host_whose_lease_cannot_be_looked_at_is_not_said_to_be_silent(
    healthy: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.cli.doctor.VERBS", "nobody.answers")
    assert agents(healthy, host("host-1"))[1]["agent host-1"] == (True, "answers, when it was heard is not known")


def test_an_agent_that_does_not_answer_is_named_with_the_mend(healthy: Cell) -> None:
    healthy.plan.mute_agents = {"host-2"}
    code, found = agents(healthy, host("host-1"), host("host-2"))
    assert (code, found["agents"]) == (FAILED, (True, "2 hosts registered, 1 well"))
    assert found["agent host-2"] == (False, "does not answer, never heard")
    assert "fairlease serve agent" in healthy.run("doctor", "--quiet").out


def test_a_tripped_breaker_is_told_with_its_pool(healthy: Cell) -> None:
    # rule: 7.3
    healthy.plan.replies["hosts"] = HostsView(
        rows=(host("host-1"),), as_of=AS_OF, tripped={"h100": AS_OF.log_time_ms - 300_000}
    )
    seen = healthy.run("doctor", "--json")
    wrong = [(check["name"], check["found"]) for check in json.loads(seen.out)["checks"] if not check["is_ok"]]
    told = "tripped 5m ago: silent hosts of the pool are not held, and work may be placed there"
    assert (seen.code, wrong) == (FAILED, [("breaker h100", told)])


def test_a_host_that_is_out_of_service_may_be_silent(healthy: Cell) -> None:
    healthy.plan.mute_agents = {"host-9"}
    code, found = agents(healthy, host("host-9", holds=("cordon (ann): fan",)))
    assert (code, found["agent host-9"]) == (
        OK,
        (True, "does not answer, never heard; out of service: cordon (ann): fan"),
    )


def test_of_many_hosts_those_that_are_well_are_counted(healthy: Cell) -> None:
    healthy.plan.mute_agents = {"host-7"}
    code, found = agents(healthy, *(host(f"host-{n}") for n in range(40)))
    assert (code, list(found)) == (FAILED, ["agents", "agent host-7"])


def test_hosts_that_nobody_can_name_are_not_guessed(healthy: Cell) -> None:
    del healthy.plan.replies["hosts"]
    seen = healthy.run("doctor", "-o", "name")
    assert (seen.code, seen.out.split()) == (FAILED, ["agents"])


def test_without_a_bus_the_rest_is_not_guessed(healthy: Cell) -> None:
    seen = healthy.run("doctor", "-o", "name", FAIRLEASE_URL="nats://127.0.0.1:1")
    assert (seen.code, seen.out.split()) == (FAILED, ["bus", "cell"])


def found(cell: Cell, name: str, **env: str) -> tuple[bool, str]:
    """Whether that check is well, and what it found."""
    checks = json.loads(cell.run("doctor", "--json", **env).out)["checks"]
    return next((check["is_ok"], check["found"]) for check in checks if check["name"] == name)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        pytest.param({"FAIRLEASE_METRICS_PROT": "1"}, "FAIRLEASE_METRICS_PROT is read by nobody", id="a typo"),
        pytest.param({"FAIRLEASE_METRICS_PORT": "x"}, "is not a port", id="a port"),
        pytest.param({"FAIRLEASE_TRACES": "yes"}, "neither a file nor an address", id="traces"),
        pytest.param({"FAIRLEASE_TRACES": "http://ann:canary@h"}, "without a user", id="traces with a password"),
        pytest.param({"FAIRLEASE_LABELS": "x"}, "is not a label", id="labels"),
    ],
)
def test_a_variable_that_is_wrong_is_named(healthy: Cell, env: dict[str, str], told: str) -> None:
    is_ok, said = found(healthy, "config", **env)
    assert (is_ok, told in said, "canary" in said) == (False, True, False)


def test_what_a_job_is_told_is_no_typo(healthy: Cell) -> None:
    env = {
        "FAIRLEASE_HOSTS": "a,b",
        "FAIRLEASE_JOB": "job-x",
        "FAIRLEASE_TOKEN": "1-2-0",
        "FAIRLEASE_TRACES": "file:/x",
    }
    assert found(healthy, "config", **env) == (True, "told by FAIRLEASE_HOME, FAIRLEASE_TRACES")


def mend(cell: Cell, name: str, **env: str) -> str:
    """What the doctor says is to be done about that check, which is not well."""
    checks = json.loads(cell.run("doctor", "--json", **env).out)["checks"]
    (check,) = (check for check in checks if check["name"] == name)
    assert not check["is_ok"]
    return str(check["mend"])


@pytest.mark.parametrize(("off_ms", "is_well"), [(4_000, True), (-4_000, True), (6_000, False), (-6_000, False)])
def test_a_clock_that_is_off_is_told_and_set_by_ntp(
    healthy: Cell, monkeypatch: pytest.MonkeyPatch, off_ms: int, is_well: bool
) -> None:
    right = time.time_ns
    monkeypatch.setattr("fairlease.cli.doctor.time.time_ns", lambda: right() + off_ms * 1_000_000)
    is_ok, said = found(healthy, "clock")
    assert (is_ok, "from the bus" in said) == (is_well, True)
    if not is_well:
        assert "set this machine's clock (by NTP)" in mend(healthy, "clock")


def test_a_disk_that_is_almost_full_is_told_with_the_room_that_it_needs(
    healthy: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = shutil.disk_usage("/")._replace(free=1_023 * 1024 * 1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: used)
    assert found(healthy, "disk") == (False, f"1023 MiB free for {healthy.home}")
    assert mend(healthy, "disk") == "make room there (at least 1024 MiB), or set FAIRLEASE_HOME to a larger disk"


@pytest.fixture
def key(healthy: Cell, tmp_path: Path) -> Path:
    """A key of the account, made as a cell makes them."""
    keys.make(tmp_path, keys.client_name(ACCOUNT))
    return keys.key_path(tmp_path, keys.client_name(ACCOUNT))


def test_a_key_is_named_and_never_shown(healthy: Cell, key: Path) -> None:
    seed = json.loads(key.read_text())["seed"]
    said = healthy.run("doctor", "--json", FAIRLEASE_CREDS=str(key)).out
    is_ok, told = next((one["is_ok"], one["found"]) for one in json.loads(said)["checks"] if one["name"] == "key")
    assert (is_ok, told.startswith(f"client-{ACCOUNT}, U"), seed in said) == (True, True, False)


def test_a_key_that_is_not_there_is_told_with_where_to_name_it(healthy: Cell, tmp_path: Path) -> None:
    at = str(tmp_path / "none.key")
    assert found(healthy, "key", FAIRLEASE_CREDS=at) == (False, f"key {at}: there is no such file")
    assert mend(healthy, "key", FAIRLEASE_CREDS=at) == "name the one you were given in FAIRLEASE_CREDS"


@pytest.mark.parametrize("text", ["", "{}", '{"identity": "client-local", "seed": "canary-no-seed"}'])
def test_a_file_that_is_no_key_is_told_and_not_quoted(healthy: Cell, key: Path, text: str) -> None:
    key.chmod(0o600)
    key.write_text(text)
    is_ok, told = found(healthy, "key", FAIRLEASE_CREDS=str(key))
    assert (is_ok, told.startswith(f"key {key}: "), "canary" in told) == (False, True, False)
    assert "delete it" in mend(healthy, "key", FAIRLEASE_CREDS=str(key))


def test_a_key_of_another_account_is_told_and_no_service_is_blamed(healthy: Cell, key: Path) -> None:
    """The bus lets nobody ask with it, and says nothing: all would look as if nobody answered."""
    env = {"FAIRLEASE_CREDS": str(key), "FAIRLEASE_ACCOUNT": ACCOUNTS[1]}
    told = f"key {key}: is of client-{ACCOUNT}, and account {ACCOUNTS[1]} asks"
    assert found(healthy, "key", **env) == (False, told)
    assert mend(healthy, "key", **env) == "name its key in FAIRLEASE_CREDS, or another account in FAIRLEASE_ACCOUNT"


def test_a_key_that_others_may_read_is_told(healthy: Cell, key: Path) -> None:
    key.chmod(0o644)
    assert found(healthy, "key", FAIRLEASE_CREDS=str(key)) == (False, f"key {key}: others may read or change it")
    assert mend(healthy, "key", FAIRLEASE_CREDS=str(key)) == "`chmod 600` it, and make it anew if they did"


def test_a_broken_key_of_the_auditor_is_told_and_the_rest_is_looked_at(healthy: Cell) -> None:
    """The doctor looks at streams with it, and must not fall over it."""
    keys.make(healthy.home, keys.client_name(ACCOUNT))
    broken = keys.key_path(healthy.home, keys.AUDIT)
    broken.touch(0o600)
    assert found(healthy, "key") == (False, f"key {broken}: is no key")
    assert found(healthy, "streams") == (True, "not looked at: that is for who has the cell's keys")
    assert found(healthy, "ranker")[0]
    shutil.rmtree(broken.parent)


def test_services_of_another_release_are_named(healthy: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlease.cli.doctor.version", lambda: "0.2.0")
    healthy.plan.health |= {name: health(name, release="0.2.0") for name in ("ledger", "health")}
    assert found(healthy, "versions") == (True, "all of 0.2.0")
    healthy.plan.health["ranker"] = health("ranker", release="0.1.0")
    assert found(healthy, "versions") == (False, "here 0.2.0, and ranker 0.1.0")
    assert mend(healthy, "versions").startswith("finish the upgrade")


def test_services_that_fold_by_different_code_are_pointed_out(healthy: Cell) -> None:
    healthy.plan.health["ranker"] = health("ranker", fold="w")
    assert found(healthy, "versions") == (False, "services fold the log by different code")


def test_where_a_service_answers_for_its_figures_is_told(healthy: Cell) -> None:
    healthy.plan.health["ranker"] = health("ranker", port=9_402)
    assert found(healthy, "ranker") == (True, "replica a, process 7, at position 42, figures at port 9402")


def test_the_password_of_the_bus_is_not_shown(healthy: Cell) -> None:
    at = healthy.url.removeprefix("nats://")
    said = healthy.run("doctor", "--json", FAIRLEASE_URL=f"nats://ann:canary-word@{at}").out
    assert at in said
    away = healthy.run("doctor", "--json", FAIRLEASE_URL="nats://ann:canary-word@127.0.0.1:1").out
    assert "does not answer" in away
    assert "canary" not in said + away
