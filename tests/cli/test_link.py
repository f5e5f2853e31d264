from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlease.cli.exits import AWAY, CONTRACT, FORBIDDEN, LATER, CommandError
from fairlease.cli.link import Link
from fairlease.runtime.connection import connect
from fairlease.runtime.settings import Settings
from fairlease_schemas.explain import CommandAnswer
from tests.cli.cell import AS_OF, SUBJECTS, Cell


@pytest.fixture
async def link(cell: Cell) -> AsyncIterator[Link]:
    client = await connect(cell.url, "test", exit_on_close=False)
    yield Link(client, Settings(state_dir=cell.home, url=cell.url), "local")
    await client.close()


def answer(seq: int) -> bytes:
    return msgspec.json.encode(
        CommandAnswer(account="local", seq=seq, verb="cancel-job", outcome="accepted", job=f"job-{seq}", as_of=AS_OF)
    )


async def test_an_answer_that_was_not_heard_is_read_from_the_feed(link: Link) -> None:
    await link.client.jetstream().publish(SUBJECTS.answer("local", 900_001), answer(900_001))
    heard = await link.subscribe(SUBJECTS.answer("local", 900_002))
    receipt = await link._answer(heard, 900_001, timeout_s=5)
    assert (receipt.answer.job, receipt.raw) == ("job-900001", answer(900_001))


async def test_answers_to_others_are_not_taken_for_ours(link: Link) -> None:
    heard = await link.subscribe(SUBJECTS.answer("local", 0).rpartition(".")[0] + ".*")
    for seq in (900_010, 900_012, 900_011):
        await link.client.publish(SUBJECTS.answer("local", seq), answer(seq))
    assert (await link._answer(heard, 900_011, timeout_s=5)).answer.job == "job-900011"
    with pytest.raises(CommandError) as caught:
        await link._answer(heard, 900_013, timeout_s=0.1)
    assert caught.value.code == LATER


async def test_an_answer_of_another_version_is_69(link: Link) -> None:
    heard = await link.subscribe(SUBJECTS.answer("local", 900_020))
    await link.client.publish(SUBJECTS.answer("local", 900_020), b'{"kind":"Answer"}')
    with pytest.raises(CommandError, match="not understood") as caught:
        await link._answer(heard, 900_020, timeout_s=5)
    assert caught.value.code == AWAY


async def test_newer_keys_of_an_answer_are_kept_and_do_no_harm(link: Link) -> None:
    newer = answer(900_030)[:-1] + b',"mood":"good"}'
    heard = await link.subscribe(SUBJECTS.answer("local", 900_030))
    await link.client.publish(SUBJECTS.answer("local", 900_030), newer)
    assert (await link._answer(heard, 900_030, timeout_s=5)).raw == newer


async def test_a_command_too_large_for_the_inbox_is_65(link: Link) -> None:
    with pytest.raises(CommandError) as caught:
        await link.send("submit-job", b'"' + b"x" * 70_000 + b'"', timeout_ms=1_000)
    assert caught.value.code == CONTRACT


@pytest.mark.parametrize("reply", [b'{"kind":"Poem"}', b"no json", b'{"kind":"Queue"}', b""])
async def test_a_reply_of_another_version_is_69(link: Link, reply: bytes) -> None:
    async def speak(message: object) -> None:
        await message.respond(reply)  # type: ignore[attr-defined]  # a nats message, whose class is of no interest

    link.subjects = link.subjects.__class__("odd")
    await link.client.subscribe(link.subjects.ask("explainer", "queue"), cb=speak)
    with pytest.raises(CommandError, match="not understood") as caught:
        await link.ask("queue", {})
    assert caught.value.code == AWAY


@pytest.mark.parametrize("words", [("queue",), ("host", "cordon", "host-1"), ("metrics",)], ids=" ".join)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "there is no such file; name the one you were given in FAIRLEASE_CREDS", id="not there"),
        pytest.param("x", "is no key; delete it", id="no key"),
    ],
)
def test_a_key_that_cannot_be_used_is_77_and_its_file_is_named(
    cell: Cell, tmp_path: Path, words: tuple[str, ...], text: str | None, said: str
) -> None:
    """Given a bus that is there, when the key's file is not as it must be, then a pipeline knows it is no outage."""
    path = tmp_path / "ci.key"
    if text is not None:
        path.write_text(text)
    found = cell.run(*words, FAIRLEASE_CREDS=str(path))
    assert (found.code, f"key {path}: {said}" in found.err) == (FORBIDDEN, True), found
