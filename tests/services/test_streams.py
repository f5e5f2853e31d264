from functools import partial
from importlib import import_module
from typing import NamedTuple

import pytest
from nats.js.errors import APIError

from fairlease.runtime import api, streams
from fairlease.runtime.connection import Connection
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import Settings
from fairlease.runtime.spans import Spans
from fairlease_schemas.subjects import Subjects
from tests.services.bench import record, store


async def _change(client: Connection, stream: str, **fields: object) -> None:
    config = (await api.request(client, f"STREAM.INFO.{stream}"))["config"]
    await api.request(client, f"STREAM.UPDATE.{stream}", {**config, **fields})


async def test_declaring_twice_makes_nothing_and_changes_nothing(client: Connection, subjects: Subjects) -> None:
    assert await streams.declare(client, subjects, ("local",)) == []
    assert await streams.assert_config(client, subjects) == [subjects.inbox_stream("local")]


async def test_a_new_account_gets_an_inbox(client: Connection, subjects: Subjects) -> None:
    made = await streams.declare(client, subjects, ("local", "ci"))
    assert made == [subjects.inbox_stream("ci")]
    assert await streams.inboxes(client, subjects) == [subjects.inbox_stream("ci"), subjects.inbox_stream("local")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_age", 3_600_000_000_000),
        ("max_msgs", 2),
        ("discard", "old"),
        ("max_msg_size", 1024),
        ("duplicate_window", 60_000_000_000),
        ("allow_msg_ttl", True),
    ],
)
async def test_a_log_that_was_reconfigured_is_refused_by_name(
    client: Connection, subjects: Subjects, field: str, value: object
) -> None:
    await _change(client, subjects.log_stream, **{field: value})
    with pytest.raises(ConfigWrong, match=rf"stream {subjects.log_stream}: {field} must be .* and is {value!r}"):
        await streams.assert_config(client, subjects)
    with pytest.raises(ConfigWrong):
        await streams.declare(client, subjects, ("local",))


async def test_a_missing_stream_is_refused(client: Connection, subjects: Subjects) -> None:
    await client.jsm().delete_stream(subjects.orders_stream)
    with pytest.raises(ConfigWrong, match=subjects.orders_stream):
        await streams.assert_config(client, subjects)


async def test_everything_that_is_wrong_is_told_at_once(client: Connection, subjects: Subjects) -> None:
    await client.jsm().delete_stream(subjects.orders_stream)
    await client.jsm().delete_stream(subjects.bundles_stream)
    await _change(client, subjects.leases_stream, max_msgs=2)
    with pytest.raises(ConfigWrong) as raised:
        await streams.assert_config(client, subjects)
    named = [line.removeprefix("stream ").partition(":")[0] for line in str(raised.value).split("; ")]
    assert [name for name in named if name.startswith("FL_")] == [
        subjects.orders_stream,
        subjects.leases_stream,
        subjects.bundles_stream,
    ]


USED = {
    "admission": {"LOG", "REPORTS", "TIMERS_ADMISSION", "CONTRACTS", "INBOX_local"},
    "ledger": {"LOG", "INBOX_local"},
    "ranker": {"LOG", "TIMERS_RANKER"},
    "placement": {"LOG"},
    "preemption": {"LOG", "ORDERS"},
    "health": {"LOG", "REPORTS", "TIMERS_HEALTH", "LEASES", "INBOX_local"},
    "explainer": {"LOG", "FEED"},
}


class Sketch(NamedTuple):
    """A shell as far as a definition looks at it."""

    client: Connection
    subjects: Subjects
    settings: Settings
    clock: object = None
    spans: Spans = Spans()


@pytest.mark.parametrize("service", USED)
async def test_a_service_needs_the_streams_that_it_uses_and_no_other(
    client: Connection, subjects: Subjects, settings: Settings, service: str
) -> None:
    defined = import_module(f"fairlease.{service}.app").define(Sketch(client, subjects, settings))
    uses = partial(defined.uses, subjects)
    names = list(streams.wanted(subjects, ("local",)))
    prefix = subjects.log_stream.removesuffix("LOG")
    assert {name.removeprefix(prefix) for name in names if uses(name)} == USED[service]
    for name in names:
        if not uses(name):
            await client.jsm().delete_stream(name)
    await streams.assert_config(client, subjects, uses)
    await client.jsm().delete_stream(subjects.log_stream)
    with pytest.raises(ConfigWrong, match=subjects.log_stream):
        await streams.assert_config(client, subjects, uses)


async def test_a_record_can_be_neither_deleted_nor_purged(client: Connection, subjects: Subjects) -> None:
    await store(client, subjects.log("ledger", "x"), record())
    with pytest.raises(APIError):
        await client.jsm().delete_msg(subjects.log_stream, 1)
    with pytest.raises(APIError):
        await client.jsm().purge_stream(subjects.log_stream)


async def test_samples_are_kept_for_days_and_the_oldest_go_first(client: Connection, subjects: Subjects) -> None:
    config = (await api.request(client, f"STREAM.INFO.{subjects.telemetry_stream}"))["config"]
    assert config["subjects"] == [f"fl.{subjects.cell}.telemetry.*.*"]
    assert (config["discard"], config["max_age"]) == ("old", 7 * 86_400 * 10**9)
    await store(client, subjects.telemetry("host-1", "gpus"), b"{}")


async def test_of_orders_the_last_is_kept_and_of_contracts_the_first(client: Connection, subjects: Subjects) -> None:
    for body in (b"1", b"2"):
        await store(client, subjects.order("host-1"), body)
    await store(client, subjects.contract("d1"), b"1")
    second = await client.request(subjects.contract("d1"), b"2", timeout=3)
    assert b"10077" in second.data
    last = await client.jsm().get_last_msg(subjects.orders_stream, subjects.order("host-1"))
    kept = await client.jsm().get_last_msg(subjects.contracts_stream, subjects.contract("d1"))
    assert (last.data, kept.data) == (b"2", b"1")


async def test_a_cell_whose_streams_are_of_another_make_is_refused_before_anything_is_made(
    client: Connection, subjects: Subjects
) -> None:
    """Given a stream that is not as it must be and one that is missing, then the second is not made either."""
    await client.jsm().delete_stream(subjects.telemetry_stream)
    await client.jsm().delete_stream(subjects.contracts_stream)
    old = subjects.contract("*").removesuffix(".body")
    await client.jsm().add_stream(name=subjects.contracts_stream, subjects=[old])
    with pytest.raises(ConfigWrong, match=f"{subjects.contracts_stream}: .* must be"):
        await streams.declare(client, subjects, ("local",))
    assert subjects.telemetry_stream not in [info.config.name for info in await client.jsm().streams_info()]


async def test_a_stream_whose_subjects_another_has_is_told_with_the_way_out(
    client: Connection, subjects: Subjects
) -> None:
    """Given a cell of before, whose timers were one stream, then its start says so in a line, and not as a fault."""
    ranker = subjects.timers_stream("ranker")
    await client.jsm().delete_stream(ranker)
    await client.jsm().add_stream(name="OF_BEFORE", subjects=[streams.timer_subjects(subjects, "ranker")])
    with pytest.raises(ConfigWrong, match=rf"stream {ranker}: another stream .* choose another FAIRLEASE_HOME"):
        await streams.declare(client, subjects, ("local",))
