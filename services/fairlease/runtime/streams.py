"""The streams of a cell: declared once at deployment; every service asserts at its start those that it uses.

So a bus of an earlier release, which lacks a stream that came since, stops only who needs it. What makes the log a log
(log.md L1) is a table here. Nothing is ever corrected silently: a stream that differs is refused, because whoever
changed it may also have changed what is in it.
"""

from collections.abc import Callable
from typing import Any, Final

from nats.aio.client import Client

from fairlease.runtime import api
from fairlease.runtime.errors import ConfigWrong, config_wrong
from fairlease_schemas.bundle import KEPT_DAYS, PIECE_BYTES
from fairlease_schemas.subjects import TIMED, Subjects

KIB: Final = 1024
_SECOND_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * _SECOND_NS
_DUPLICATE_WINDOW_NS: Final = _SECOND_NS // 10
"""The least the bus allows: its de-duplication works across accounts and drops what it should not."""

_OVERLAP: Final = 10065
"""The bus's word for subjects that another stream has."""

_ABSENT: Final[dict[str, Any]] = {
    "sealed": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "allow_msg_schedules": False,
    "allow_msg_counter": False,
    "subject_delete_marker_ttl": 0,
    "no_ack": False,
    "mirror": None,
    "sources": None,
    "republish": None,
    "subject_transform": None,
    "deny_delete": False,
    "deny_purge": False,
    "discard_new_per_subject": False,
}
"""What no stream has unless its own row says so; each of these can lose or make messages."""

_LIMITLESS: Final[dict[str, Any]] = {
    "retention": "limits",
    "storage": "file",
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "duplicate_window": _DUPLICATE_WINDOW_NS,
}


def wanted(subjects: Subjects, accounts: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Every stream of the cell by name, with the fields it must have, in the server's own words.

    `accounts` are the client accounts, each with an inbox of its own.
    """
    rows: dict[str, dict[str, Any]] = {
        subjects.log_stream: {
            "subjects": [subjects.log_all()],
            "discard": "new",
            "deny_delete": True,
            "deny_purge": True,
            "max_msg_size": 256 * KIB,
            "allow_direct": True,
        },
        subjects.reports_stream: {
            "subjects": [subjects.report("*", "*")],
            "discard": "new",
            "max_msg_size": 64 * KIB,
            "max_age": 30 * _DAY_NS,
        },
        subjects.orders_stream: {
            "subjects": [subjects.order("*")],
            "discard": "old",
            "max_msgs_per_subject": 1,
            "max_msg_size": 256 * KIB,
            "allow_direct": True,
        },
        subjects.leases_stream: {
            # What counts is when the bus stored the last renewal of a host; its body is for people.
            "subjects": [subjects.lease("*")],
            "discard": "old",
            "max_msgs_per_subject": 1,
            "max_msg_size": 1 * KIB,
            "allow_direct": True,
        },
        **{subjects.timers_stream(service): _timers(subjects, service) for service in TIMED},
        subjects.feed_stream: {
            "subjects": [any_last(subjects.answer("*", 0)), subjects.feed("*", "*", "*")],
            "discard": "old",
            "max_msg_size": 256 * KIB,
            "max_age": 30 * _DAY_NS,
            "allow_direct": True,
            # The explainer alone writes here: its replicas publish the same messages under the same ids.
            "duplicate_window": 120 * _SECOND_NS,
        },
        subjects.contracts_stream: {
            "subjects": [subjects.contract("*")],
            "discard": "new",
            "max_msgs_per_subject": 1,
            "discard_new_per_subject": True,
            "max_msg_size": 64 * KIB,
            "allow_direct": True,
        },
        subjects.evidence_stream: _evidence(subjects),
        subjects.telemetry_stream: _telemetry(subjects),
        subjects.bundles_stream: _bundles(subjects),
    }
    for account in accounts:
        rows[subjects.inbox_stream(account)] = _inbox(subjects, account)
    return {name: {"name": name, **_ABSENT, **_LIMITLESS, **row} for name, row in rows.items()}


async def declare(client: Client, subjects: Subjects, accounts: tuple[str, ...], *, replicas: int = 1) -> list[str]:
    """Makes the streams that are missing and returns their names; deployment alone may do this.

    A stream that is there is asserted, never changed: ConfigWrong when it differs, also in how many servers hold it, in
    which case none was made, or when another has its subjects.
    """
    missing = {}
    for name, fields in wanted(subjects, accounts).items():
        try:
            found = await api.request(client, f"STREAM.INFO.{name}")
        except api.Refused as refused:
            if refused.code != api.STREAM_NOT_FOUND:
                raise
            missing[name] = {key: value for key, value in fields.items() if value is not None}
        else:
            compare(name, {**fields, "num_replicas": replicas}, found["config"])
    for name, fields in missing.items():
        try:
            await api.request(client, f"STREAM.CREATE.{name}", {**fields, "num_replicas": replicas})
        except api.Refused as refused:
            if refused.code != _OVERLAP:
                raise
            raise ConfigWrong(
                f"stream {name}: another stream of this bus has its subjects {', '.join(fields['subjects'])}; "
                "a cell of an earlier release is not gone on with: choose another FAIRLEASE_HOME, or an empty store"
            ) from refused
    return list(missing)


def any_stream(_name: str) -> bool:
    """All of a cell."""
    return True


async def assert_config(client: Client, subjects: Subjects, uses: Callable[[str], bool] = any_stream) -> list[str]:
    """Refuses to go on when a stream of the cell that is used is missing or differs; returns the inboxes found.

    Raises ConfigWrong with everything that is wrong, by stream, field, expected and found; BusAway when the bus does
    not answer.
    """
    accounts = tuple(subjects.account_of_inbox(name) for name in await inboxes(client, subjects))
    wrong: list[str] = []
    for name, fields in wanted(subjects, accounts).items():
        if not uses(name):
            continue
        try:
            compare(name, fields, (await api.request(client, f"STREAM.INFO.{name}"))["config"])
        except api.Refused as refused:
            wrong.append(f"stream {name}: {refused}; declare the streams of this cell first")
        except ConfigWrong as differs:
            wrong.append(str(differs))
    if wrong:
        raise ConfigWrong("; ".join(wrong))
    return [subjects.inbox_stream(account) for account in accounts]


def compare(name: str, fields: dict[str, Any], found: dict[str, Any]) -> None:
    """ConfigWrong for the first field, in the order of the names, that is not as it must be."""
    for field in sorted(fields):
        expected, seen = fields[field], found.get(field)
        if field == "subjects":
            expected, seen = sorted(expected), sorted(seen or ())
        if expected != seen and not (not expected and not seen):
            way_out = "find out who changed it and what was lost before setting it back"
            raise config_wrong(f"stream {name}", field, expected, seen, way_out)


async def inboxes(client: Client, subjects: Subjects) -> list[str]:
    """The names of all account inboxes of the cell, sorted."""
    names: list[str] = []
    while True:
        page = await api.request(client, "STREAM.NAMES", {"offset": len(names)})
        listed = page.get("streams") or []
        names += listed
        if not listed or len(names) >= int(page["total"]):
            return sorted(name for name in names if name.startswith(subjects.inbox_prefix))


def timer_subjects(subjects: Subjects, service: str) -> str:
    """Where the timers of a service fire."""
    return any_last(subjects.timer(service, 0))


def _timers(subjects: Subjects, service: str) -> dict[str, Any]:
    """The bus refuses `discard: new` with schedules, and wants rollup: a header of any message empties the stream.

    So each service has a stream of its own. No age either, because it would also expire a schedule that is due later.
    Fired timers carry a TTL.
    """
    return {
        "subjects": [timer_subjects(subjects, service), any_last(subjects.schedule(service, 0))],
        "discard": "old",
        "max_msgs_per_subject": 1,
        "max_msg_size": 1 * KIB,
        "allow_msg_schedules": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
    }


def _inbox(subjects: Subjects, account: str) -> dict[str, Any]:
    return {
        "subjects": [subjects.command(account, "*"), subjects.command(account, "*", "*")],
        "discard": "new",
        "max_msg_size": 64 * KIB,
        "max_age": 30 * _DAY_NS,
        "max_bytes": KIB * KIB * KIB,
    }


def _evidence(subjects: Subjects) -> dict[str, Any]:
    """Beside the log, and erasable: what a job printed may be somebody's secret all the same."""
    return {
        "subjects": [subjects.evidence("*", "*")],
        "discard": "old",
        "max_msgs_per_subject": 1,
        "max_msg_size": 20 * KIB,
        "max_age": 30 * _DAY_NS,
        "max_bytes": KIB * KIB * KIB,
        "allow_direct": True,
    }


def _telemetry(subjects: Subjects) -> dict[str, Any]:
    """Samples of devices: days of them, the oldest dropped; nothing that decides reads here."""
    return {
        "subjects": [subjects.telemetry("*", "*")],
        "discard": "old",
        "max_msg_size": 64 * KIB,
        "max_age": 7 * _DAY_NS,
        "max_bytes": KIB * KIB * KIB,
        "allow_direct": True,
    }


def _bundles(subjects: Subjects) -> dict[str, Any]:
    """Code by account and digest, in pieces; what is uploaded again takes the place of the same bytes.

    Full, it refuses new bundles rather than dropping one that a waiting job will need.
    """
    return {
        "subjects": [subjects.bundle("*", "*", "*")],
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msg_size": PIECE_BYTES,
        "max_age": KEPT_DAYS * _DAY_NS,
        "max_bytes": 16 * KIB * KIB * KIB,
        "compression": "s2",
        "allow_direct": True,
    }


def any_last(subject: str) -> str:
    """The subject with its last token open."""
    return subject.rpartition(".")[0] + ".*"
