"""`doctor`: what is wrong with this cell as seen from here, and how to mend each thing.

It looks and never mends. Every check says what it found and, when that is wrong, one thing to do; a check
that cannot be made because an earlier one failed says so instead of guessing. Exit 0 when all are well.
"""

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
import nats.errors

from fairlease.cli.exits import FAILED, OK, CommandError
from fairlease.cli.link import Link, inbox_way_out, linked
from fairlease.cli.output import output_of, print_data, print_text, refused
from fairlease.cli.parser import account_of
from fairlease.cli.setting_checks import key_of, told_by, trouble_with
from fairlease.cli.table import Column, Style, table
from fairlease.cli.wording import ago, count, length
from fairlease.core.host import CORDON, DRAIN
from fairlease.runtime import api, keys
from fairlease.runtime.clock import LIMIT_MS, parse_bus_time_ms
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import BusAway, ConfigWrong, ShellError
from fairlease.runtime.settings import read_settings
from fairlease.runtime.streams import assert_config
from fairlease.runtime.version import version
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import Health, HostRow, HostsView
from fairlease_schemas.subjects import SERVICES, VERBS
from fairlease_schemas.units import DAY_MS

LEAST_PYTHON: Final = (3, 11)
LEAST_FREE_MIB: Final = 1_024
"""Below this much room for the log a cell will soon stop."""
LEAST_CERTIFICATE_MS: Final = 30 * DAY_MS
"""A certificate that ends sooner should be renewed now: with it ends every new connection."""
HEALTH_S: Final = 2.0
MOST_SHOWN: Final = 32
"""So many hosts are shown one by one."""
AGENTS_AT_ONCE: Final = 64
NO_HOSTS: Final = "no host is registered; jobs wait until one is"
_READABLE: Final = "see that it is yours and can be read"
_START_BUS: Final = "start it with `fairlease up`, or set FAIRLEASE_URL"


class Check(NamedTuple):
    """One thing that was looked at: what was found and, unless it is well, how to mend it."""

    name: str
    is_ok: bool
    found: str
    mend: str = ""


def run(args: argparse.Namespace) -> int:
    """Make all checks and print them; 0 when all are well, else 1."""
    checks = asyncio.run(checks_of(args))
    output = output_of(args)
    if output.form in ("table", "wide"):
        print_text(screen(checks, output.style, is_quiet=output.is_quiet))
    else:
        encoded = msgspec.json.encode(report(checks))
        print_data(output.form, encoded, (check.name for check in checks if not check.is_ok))
    return OK if all(check.is_ok for check in checks) else FAILED


async def checks_of(args: argparse.Namespace) -> list[Check]:
    """Every check, made here and now, in the order in which one rests on another."""
    return [_python(), _config(), _key(account_of(args)), _disk(), _devices(), *await _cell(args)]


def report(checks: list[Check]) -> dict[str, object]:
    """The checks as a view."""
    return {"apiVersion": "fairlease/v1", "kind": "DoctorReport", "checks": [check._asdict() for check in checks]}


def screen(checks: list[Check], style: Style, *, is_quiet: bool) -> str:
    """The checks as a table, and below it how to mend what is wrong; `is_quiet` shows only that."""
    rows = [(check.name, "ok" if check.is_ok else "wrong", check.found) for check in checks]
    columns = (Column("CHECK"), Column(""), Column("FOUND", is_flexible=True))
    mends = "".join(f"{check.name}: {check.mend}\n" for check in checks if not check.is_ok)
    if is_quiet:
        return mends
    return table(columns, rows, style) + (f"\nto mend:\n{mends}" if mends else "\nall is well\n")


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    return Check("python", sys.version_info >= LEAST_PYTHON, found, "install Python 3.11 or newer")


def _config() -> Check:
    """The variables of this environment."""
    names = told_by(os.environ)
    trouble = trouble_with(os.environ)
    found = trouble or (f"told by {', '.join(names)}" if names else "nothing is set, all is as it comes")
    return Check("config", not trouble, found, "set the variable right, or unset it")


def _key(account: str) -> Check:
    """The key that proves the account to the bus; a bus without keys asks for none."""
    try:
        return Check("key", is_ok=True, found=key_of(read_settings(), account))
    except (ConfigWrong, OSError) as error:
        what, _, way_out = str(error).partition("; ")
        return Check("key", is_ok=False, found=what, mend=way_out or "see that its file is there and yours")


def _disk() -> Check:
    """Room where the state is kept, or would be."""
    try:
        where = read_settings().state_dir
    except ConfigWrong as error:
        return Check("disk", is_ok=False, found=str(error), mend="set the variable to a name")
    there = where
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        free_mib = shutil.disk_usage(there).free // (1024 * 1024)
    except OSError as error:
        mend = "mend its rights, or set FAIRLEASE_HOME to a directory of yours"
        return Check("disk", is_ok=False, found=refused(error), mend=mend)
    made = "" if there == where else ", not made yet"
    return Check(
        "disk",
        free_mib >= LEAST_FREE_MIB,
        f"{free_mib} MiB free for {where}{made}",
        f"make room there (at least {LEAST_FREE_MIB} MiB), or set FAIRLEASE_HOME to a larger disk",
    )


def _devices() -> Check:
    """The GPUs of this machine; none is well, because a cell may simulate its hosts or have them elsewhere."""
    from fairlease.agent.devices import Machine, NoGpus, Site
    from fairlease.agent.nvml import DRIVER_LABEL, open_gpus

    try:
        gpus = open_gpus(Site(), Machine(0, 0, 0))
    except NoGpus as none:
        return Check("devices", not none.mend, str(none), none.mend)
    gpus.close()
    found = gpus.inventory()
    driver = f", driver {found.labels[DRIVER_LABEL]}" if DRIVER_LABEL in found.labels else ""
    return Check("devices", is_ok=True, found=f"{len(found.gpus)} x {found.model}{driver}")


async def _cell(args: argparse.Namespace) -> list[Check]:
    """All checks that need the bus."""
    try:
        async with linked(args) as link, eyes_of(link) as eyes:
            checks = [_bus(link)]
            checks.append(await _tried("streams", link, lambda link: _streams(link, eyes)))
            checks.append(await _tried("inbox", link, _inbox))
            checks.append(await _tried("clock", link, lambda link: _clock(link, eyes)))
            services = await asyncio.gather(*(_service(link, service) for service in SERVICES))
            checks += [check for check, _ in services]
            checks.append(_versions([health for _, health in services if health is not None]))
            return checks + await _agents(link, eyes)
    except (CommandError, OSError) as error:
        found, mend = (error.text, error.way_out) if isinstance(error, CommandError) else (refused(error), _READABLE)
        what, _, way_out = (found, "", mend) if mend else found.partition("; ")
        return [
            Check("bus", is_ok=False, found=what, mend=way_out or _START_BUS),
            Check("cell", is_ok=False, found="not looked at without a bus", mend="mend the bus first"),
        ]


@asynccontextmanager
async def eyes_of(link: Link) -> AsyncIterator[Connection | None]:
    """A connection that may look at streams: the auditor's, where its key lies; None where there is none it speaks for.

    A bus without keys lets everybody look, and who came with an auditor's key looks by it.
    """
    asking = keys.find(link.settings, keys.client_name(link.account))
    if asking is not None and keys.is_auditor(asking.identity):
        yield link.client
        return
    settings = msgspec.structs.replace(link.settings, creds="")
    is_elsewhere = bool(link.settings.creds) and not (settings.state_dir / keys.KEYS).is_dir()
    own = None
    try:
        key = keys.find(settings, keys.AUDIT)
        if key is not None and not is_elsewhere:
            own = await connect(settings, "fairlease-doctor", key=key, exit_on_close=False)
    except (ConfigWrong, BusAway):
        is_elsewhere = True  # none, a broken one (the check of the keys says so), or another cell's
    try:
        yield None if is_elsewhere else own or link.client
    finally:
        if own is not None:
            await own.close()


def _bus(link: Link) -> Check:
    version, where = link.client.connected_server_version, link.client.connected_url
    number = f"{version.major}.{version.minor}.{version.patch}"
    at = f"{where.hostname}:{where.port}" if where else "an unknown place"
    found = f"nats-server {number} at {at}"
    ends_s = link.client.certificate_ends_s
    if ends_s is None:
        return Check("bus", is_ok=True, found=found)
    left_ms = ends_s * 1_000 - time.time_ns() // 1_000_000
    return Check(
        "bus",
        left_ms >= LEAST_CERTIFICATE_MS,
        f"{found}, by TLS, its certificate ends on {datetime.fromtimestamp(ends_s, UTC):%Y-%m-%d}",
        "`fairlease certs --renew` where the bus runs; one that `fairlease up` keeps takes it at once, reload another",
    )


async def _tried(name: str, link: Link, check: Callable[[Link], Awaitable[Check]]) -> Check:
    """The check, or what kept it from being made."""
    try:
        return await check(link)
    except ShellError as error:
        return Check(
            name, is_ok=False, found=str(error), mend="see that the bus runs with JetStream and its disk is writable"
        )


async def _streams(link: Link, eyes: Connection | None) -> Check:
    if eyes is None:
        return Check("streams", is_ok=True, found="not looked at: that is for who has the cell's keys")
    try:
        inboxes = await assert_config(eyes, link.subjects)
    except ConfigWrong as error:
        return Check(
            "streams",
            is_ok=False,
            found=str(error),
            mend="`fairlease up` declares what is missing; it never changes what differs",
        )
    return Check("streams", is_ok=True, found=f"all as declared, {len(inboxes)} with commands of accounts")


async def _inbox(link: Link) -> Check:
    name = link.subjects.inbox_stream(link.account)
    mend = f"{inbox_way_out(link.account)}; --account or FAIRLEASE_ACCOUNT names another"
    try:
        state = (await api.request(link.client, f"STREAM.INFO.{name}"))["state"]
    except api.Refused as error:
        return Check("inbox", is_ok=False, found=f"account {link.account} has none ({error})", mend=mend)
    return Check("inbox", is_ok=True, found=f"account {link.account} has one, {state['messages']} commands kept")


async def _clock(link: Link, eyes: Connection | None) -> Check:
    """The bus's time lies between the sending and the receipt; only what is outside is a difference."""
    sent_ms = time.time_ns() // 1_000_000
    subjects = link.subjects
    stream = subjects.log_stream if eyes is not None else subjects.inbox_stream(link.account)
    answer = await api.request(eyes or link.client, f"STREAM.INFO.{stream}")
    bus_ms = parse_bus_time_ms(answer["ts"])
    ahead_ms, behind_ms = sent_ms - bus_ms, bus_ms - time.time_ns() // 1_000_000
    apart_ms = max(ahead_ms, behind_ms, 0)
    return Check(
        "clock",
        apart_ms <= LIMIT_MS,
        f"{length(apart_ms)} from the bus" if apart_ms else "with the bus",
        f"set this machine's clock (by NTP): a process {length(LIMIT_MS)} from the bus stops writing",
    )


def _versions(answered: list[Health]) -> Check:
    """Whether the services that answered are of our release, and fold alike."""
    ours = version()
    others = sorted({health.version for health in answered if health.version} - ({ours} if ours else set()))
    folds = {health.fold_version for health in answered}
    mend = "finish the upgrade: stop `fairlease up` and start it again with one release, or the services one by one"
    if others and ours:
        strange = ", ".join(f"{health.service} {health.version}" for health in answered if health.version in others)
        return Check("versions", is_ok=False, found=f"here {ours}, and {strange}", mend=mend)
    if len(folds) > 1:
        return Check("versions", is_ok=False, found="services fold the log by different code", mend=mend)
    return Check("versions", is_ok=True, found=f"all of {ours}" if ours and answered else "nothing differs")


async def _service(link: Link, service: str) -> tuple[Check, Health | None]:
    """A service that answers and has folded the log, and what it said."""
    mend = f"start it with `fairlease serve {service}`, or all with `fairlease up`"
    try:
        raw = await asyncio.wait_for(link.request(service, "health", {}), HEALTH_S)
        health = understood(raw, Health)
    except CommandError as error:
        return Check(service, is_ok=False, found=error.text, mend=mend), None
    except (TimeoutError, Unreadable) as error:
        why = str(error) or "no answer in time"
        return Check(service, is_ok=False, found=f"no health from it: {why}", mend=mend), None
    found = f"replica {health.replica}, process {health.pid}, at position {health.position}"
    found += f", figures at port {health.metrics_port}" if health.metrics_port else ""
    if not health.is_ready:
        found += ", still folding the log"
        return Check(service, is_ok=False, found=found, mend="wait; ask again in a moment"), health
    if health.closed:
        mend = "make room on the bus's disk; a bus that stores nothing is started again by `fairlease up`"
        return Check(service, is_ok=False, found=f"{found}; closed to new work: {health.closed}", mend=mend), health
    return Check(service, is_ok=True, found=found), health


async def _agents(link: Link, eyes: Connection | None) -> list[Check]:
    """One check of all registered hosts, and one of each: of many only of those that are not well."""
    try:
        view = (await link.ask("hosts", {})).view
    except CommandError as error:
        return [
            Check("agents", is_ok=False, found=f"hosts are not known: {error.text}", mend="mend the explainer first")
        ]
    rows = view.rows if isinstance(view, HostsView) else ()
    tripped = view.tripped if isinstance(view, HostsView) else {}
    breakers = [_breaker(pool, view.as_of.log_time_ms - at_ms) for pool, at_ms in tripped.items()]  # type: ignore[union-attr]  # a HostsView, as above
    if not rows:
        return [Check("agents", is_ok=True, found=NO_HOSTS)]
    gate = asyncio.Semaphore(AGENTS_AT_ONCE)
    checks = await asyncio.gather(*(_agent(link, eyes, row, gate) for row in rows))
    well = sum(check.is_ok for check in checks)
    whole = Check("agents", is_ok=True, found=f"{count(len(rows), 'host')} registered, {well} well")
    return [whole, *(check for check in checks if not check.is_ok or len(checks) <= MOST_SHOWN), *breakers]


def _breaker(pool: str, passed_ms: int) -> Check:
    """A pool in which too much fell silent at once, so that no further host is held by itself (7.3)."""
    found = f"tripped {length(passed_ms)} ago: silent hosts of the pool are not held, and work may be placed there"
    mend = "mend the bus or the network if agents above do not answer, or take those hosts out: `fairlease host cordon`"
    return Check(f"breaker {pool}", is_ok=False, found=found, mend=mend)


async def _agent(link: Link, eyes: Connection | None, row: HostRow, gate: asyncio.Semaphore) -> Check:
    """Whether the agent of a host answers, and when its lease was renewed last.

    A host that somebody has taken out of service is well without: its agent may be stopped for the work on it.
    """
    async with gate:
        heard = await _heard(link, eyes, row.host)
        try:
            await asyncio.wait_for(link.read_log(row.host, "", 0, 16), HEALTH_S)
        except (CommandError, TimeoutError):
            is_out = row.drain is not None or any(hold.startswith((CORDON, DRAIN)) for hold in row.holds)
            why = f"; out of service: {'; '.join(row.holds)}" if is_out and row.holds else ""
            mend = f"start it there (`fairlease serve agent`), or take the host out: `fairlease host cordon {row.host}`"
            found = f"does not answer, {heard}{why}"
            return Check(f"agent {row.host}", is_ok=is_out, found=found, mend="" if is_out else mend)
    return Check(f"agent {row.host}", is_ok=True, found=f"answers, {heard}")


async def _heard(link: Link, eyes: Connection | None, host: str) -> str:
    """How long ago the bus stored the host's last renewal of its lease, by the bus's own clock."""
    if eyes is None:
        return "when it was heard is for who has the cell's keys"
    subjects = link.subjects
    try:
        asked = f"{VERBS}.DIRECT.GET.{subjects.leases_stream}.{subjects.lease(host)}"
        headers = (await eyes.request(asked, b"", timeout=HEALTH_S)).headers or {}
    except nats.errors.Error:
        return "when it was heard is not known"
    if "Nats-Time-Stamp" not in headers:
        return "never heard"
    return f"heard {ago(parse_bus_time_ms(headers['Nats-Time-Stamp']), time.time_ns() // 1_000_000)}"
