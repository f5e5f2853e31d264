import json

import pytest

from fairlease.cli.exits import FAILED, OK
from fairlease_schemas.explain import Health
from fairlease_schemas.subjects import SERVICES
from tests.cli.cell import Cell


def health(service: str, *, is_ready: bool = True) -> Health:
    return Health(
        service=service,
        replica="a",
        pid=7,
        is_ready=is_ready,
        position=42,
        records_written=1,
        moved=0,
        fold_version="v",
    )


@pytest.fixture
def healthy(cell: Cell) -> Cell:
    cell.plan.health = {service: health(service) for service in SERVICES}
    return cell


def test_a_cell_that_is_well_is_0(healthy: Cell) -> None:
    seen = healthy.run("doctor")
    assert (seen.code, seen.out.splitlines()[-1]) == (OK, "all is well")
    checks = json.loads(healthy.run("doctor", "--json").out)["checks"]
    names = ["python", "disk", "devices", "bus", "streams", "inbox", "clock", *SERVICES]
    assert [check["name"] for check in checks] == names
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


def test_without_a_bus_the_rest_is_not_guessed(healthy: Cell) -> None:
    seen = healthy.run("doctor", "-o", "name", FAIRLEASE_URL="nats://127.0.0.1:1")
    assert (seen.code, seen.out.split()) == (FAILED, ["bus", "cell"])
