"""What keys are for the people of a cell: who has one speaks for its account, from anywhere; who has none does not."""

import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlease.cli.exits import FORBIDDEN, OK
from fairlease.runtime.connection import connect
from fairlease.runtime.keys import KEYS, NoKey, key_path
from fairlease.runtime.settings import url_in
from tests.live.cell import Up, up_at
from tests.live.court import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUBMIT = ("submit", "--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("keys") / "cell") as up:
        yield up


async def _checks(code: int, out: str) -> dict[str, tuple[bool, str]]:
    assert code == OK, out
    return {check["name"]: (check["is_ok"], check["found"]) for check in json.loads(out)["checks"]}


async def test_where_the_cell_was_started_everything_can_be_looked_at(up: Up) -> None:
    code, out, err = await up.run("doctor", "--json")
    checks = await _checks(code, out + err)
    assert checks["streams"] == (True, "all as declared, 2 with commands of accounts")
    assert checks["agent host-001"][1].startswith("answers, heard ")
    assert "position" in checks["explainer"][1]


async def test_an_account_without_a_key_is_told_how_to_get_one(up: Up) -> None:
    for words in (("queue",), (*SUBMIT, "--", "true")):
        code, _, said = await up.run(*words[:1], "--account", "nobody", *words[1:])
        assert code == FORBIDDEN, said
        assert "no key of client-nobody" in said
        assert "fairlease up --account nobody" in said


async def test_a_key_speaks_for_its_account_from_another_place_and_for_no_other(up: Up, tmp_path: Path) -> None:
    creds = tmp_path / "ci.key"
    shutil.copy(key_path(up.home, "client-ci"), creds)
    elsewhere = {
        "FAIRLEASE_HOME": str(tmp_path / "home"),
        "FAIRLEASE_URL": url_in(up.home),
        "FAIRLEASE_CREDS": str(creds),
    }
    code, out, err = await up.run(*SUBMIT, "--account", "ci", "--wait", "--", "echo", "from afar", **elsewhere)
    assert code == OK, err
    assert "succeeded" in err
    checks = await _checks(*(await up.run("doctor", "--json", "--account", "ci", **elsewhere))[:2])
    assert checks["streams"] == (True, "not looked at: that is for who has the cell's keys")
    assert checks["clock"][0]
    code, _, said = await up.run(*SUBMIT, "--account", "local", "--", "true", **elsewhere)
    assert code == FORBIDDEN, said
    assert await up.journal.read()
    assert out
    for words in (("metrics",), ("acct",), ("cost",)):
        code, _, said = await up.run(*words, **elsewhere)
        assert code == FORBIDDEN, said
        assert "the whole log is read with an auditor's key, and FAIRLEASE_CREDS is client-ci's" in said
        assert "name it with --log" in said
    code, _, said = await up.run("replay", "--live", **elsewhere)
    assert (code, "is read with an auditor's key" in said) == (2, True), said


async def test_the_auditors_key_reads_the_log_and_every_decision_comes_out_the_same(up: Up) -> None:
    code, out, err = await up.run("replay", "--live")
    assert code == OK, err
    for words in (("metrics",), ("acct",), ("cost",)):
        code, figures, said = await up.run(*words)
        assert (code, bool(figures)) == (OK, True), said
    assert "equal: every decision comes out the same today" in out


async def test_nobody_gets_in_without_a_key(up: Up) -> None:
    assert sorted(path.suffix for path in (up.home / KEYS).iterdir()) == [".key"] * 13
    with pytest.raises(NoKey, match="refuses a connection without a key"):
        await connect(url_in(up.home), "stranger", exit_on_close=False)


async def test_an_agent_of_ones_own_serves_its_hosts_with_the_key_that_a_start_made_for_it(up: Up) -> None:
    assert up.process is not None
    up.process.send_signal(signal.SIGTERM)
    assert await up.wait_left() == 0
    await up.start("--agent", "more=host-005", "--bot", "fixer", "--bot", "warden=host-003", "--auditor", "ours")
    words = ("serve", "agent", "--simulate-gpus", "1x8", "--first-host", "5")
    child = await up.spawn(*words, FAIRLEASE_CREDS=str(key_path(up.home, "agent-more")))

    async def hosts() -> list[str]:
        return [row["host"] for row in (await up.ask("explainer", "hosts")).get("rows", ())]

    async def is_there() -> bool:
        return "host-005" in await hosts()

    await eventually(is_there, "the host of the other agent is registered")
    child.send_signal(signal.SIGTERM)
    assert await child.wait() == 0, (await child.communicate())[1]


async def test_a_bot_serves_hosts_and_submits_nothing(up: Up) -> None:
    """The last start made it, and the next one remembers."""
    for verb in ("cordon", "return"):
        code, _, said = await up.run("host", verb, "host-004", "--account", "fixer")
        assert code == OK, said
    code, _, said = await up.run(*SUBMIT, "--account", "fixer", "--", "true")
    assert (code, "account fixer may not send `submit-job`" in said) == (FORBIDDEN, True), said


async def test_a_bot_of_some_hosts_serves_those_and_no_other(up: Up) -> None:
    for verb in ("cordon", "return"):
        code, _, said = await up.run("host", verb, "host-003", "--account", "warden")
        assert code == OK, said
        code, _, said = await up.run("host", verb, "host-004", "--account", "warden")
        assert (code, f"account warden may not send `{verb}-host` about host-004" in said) == (FORBIDDEN, True), said


def _lines(saved: Path) -> int:
    return len(saved.read_bytes().splitlines())


async def _at_rest(up: Up, saved: Path, elsewhere: dict[str, str]) -> int:
    """How many records the log has once nobody writes any more: what was under way is no doing of the auditor's."""
    before = -1
    for _ in range(20):
        await up.run("replay", "--live", "--save", str(saved), **elsewhere)
        now = _lines(saved)
        if now == before:
            return now
        before = now
    raise AssertionError(f"the log of a cell in which nobody wants anything still grows, at {before} records")


async def test_an_auditor_reads_and_asks_from_anywhere_and_changes_nothing(up: Up, tmp_path: Path) -> None:
    """Given the key that a start made for it, when it looks from elsewhere, then it has all figures and no right."""
    creds = tmp_path / "ours.key"
    shutil.copy(key_path(up.home, "auditor-ours"), creds)
    elsewhere = {
        "FAIRLEASE_HOME": str(tmp_path / "home"),
        "FAIRLEASE_URL": url_in(up.home),
        "FAIRLEASE_CREDS": str(creds),
    }
    checks = json.loads((await up.run("doctor", "--json", **elsewhere))[1])["checks"]
    (streams,) = [check["found"] for check in checks if check["name"] == "streams"]
    assert streams.startswith("all as declared")
    saved = tmp_path / "log.jsonl"
    for words in (("metrics",), ("acct",), ("cost",), ("queue",), ("shares",), ("hosts",)):
        code, out, said = await up.run(*words, **elsewhere)
        assert (code, bool(out)) == (OK, True), (words, out, said)
    code, out, said = await up.run("replay", "--live", "--save", str(saved), **elsewhere)
    assert (code, "equal: every decision comes out the same today" in out) == (OK, True), said
    before = await _at_rest(up, saved, elsewhere)
    for words in (
        (*SUBMIT, "--", "true"),
        ("host", "cordon", "host-004"),
        ("budget", "set", "team-b", "--weight", "1"),
    ):
        code, _, said = await up.run(*words, **elsewhere)
        assert (code, "may not send" in said) == (FORBIDDEN, True), (words, said)
    await up.run("replay", "--live", "--save", str(saved), **elsewhere)
    assert _lines(saved) == before
