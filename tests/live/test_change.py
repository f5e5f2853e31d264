"""A change that is judged before it holds, on a running cell: proposed, played on the cell's own log, accepted."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.live.cell import Up, up_at
from tests.live.court import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("change") / "cell") as up:
        yield up


async def told(up: Up, *words: str, code: int = 0) -> str:
    """What a command printed, which ended with this code."""
    ended, out, err = await up.run(*words)
    assert ended == code, err
    return out + err


async def test_a_policy_is_proposed_simulated_on_the_cells_log_and_accepted_by_its_report(up: Up) -> None:
    # rule: 10.1
    for account in ("local", "ci"):
        await told(up, "budget", "member", "/", account, "--role", "lead")
    for number in range(3):
        await told(
            up,
            *("submit", "--budget", "team-a", "--min-runtime", "15m", "--timeout", "1h", "--request-id", f"r-{number}"),
            *("--wait", "--", "true"),
        )
    await told(up, "policy", "set", "gated", "--set", "change_gate=reported")
    refused = await told(up, "policy", "set", "wide", "--set", "margin_permille=50", code=1)
    assert "10.1" in refused
    await told(up, "policy", "set", "wide", "--set", "margin_permille=50", "--propose", "wider")
    early = await told(up, "policy", "accept", "wider", code=1)
    assert "a report on it" in early
    shown = await told(up, "policy", "simulate", "wider")
    assert "WITHOUT" in shown
    rows = json.loads(await told(up, "policy", "proposals", "--json"))["rows"]
    (report,) = rows[0]["reports"]
    assert f"next: fairlease policy accept wider --report {report['digest']}" in shown
    accepted = await told(up, "policy", "accept", "wider", "--report", report["digest"])
    assert "fulfilment of team-a" in accepted
    await eventually_in_force(up, "wide")
    # a budget that is made and capped is judged by the same way
    await told(up, "budget", "set", "lab", "--weight", "3", "--burst-permille", "500", "--propose", "roomy")
    shown = await told(up, "policy", "simulate", "roomy")
    digest = shown.split("--report ")[1].split()[0]
    await told(up, "policy", "accept", "roomy", "--report", digest)
    (lab,) = json.loads(await told(up, "budget", "show", "lab", "--json"))["nodes"]
    assert (lab["weight"], lab["burst_permille"]) == (3, 500)
    # rule: 10.2
    await told(up, "budget", "set", "team-a", "--weight", "7", "--propose", "heavier")
    await told(up, "policy", "accept", "heavier", "--force", "--reason", "now")
    await told(up, "policy", "accept", "heavier", "--force", "--account", "ci")
    shares = json.loads(await told(up, "budget", "show", "team-a", "--json"))
    assert shares["nodes"][0]["weight"] == 7
    await up.judge()


async def eventually_in_force(up: Up, name: str) -> None:
    found: list[str] = []

    async def look() -> bool:
        found.append(json.loads(await told(up, "policy", "show", "--json"))["name"])
        return found[-1] == name

    await eventually(look, f"the policy {name} is in force")
