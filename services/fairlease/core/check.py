"""Checks that a host passed, and whether a return rests on good ones (decisions.md 7.4).

A policy names the checks that a host must have passed before it is given back: each once, with code 0, and made
after the newest fault of the host and after its drain was asked for. What it does not name may be handed in as well:
of those a warning is kept for people to read, but a host that its own check finds critical, or that no check could
tell of, stays out whatever the policy asks for. When a check was made is its sender's word,
as its code is: whoever gives a host back answers for both, and the log keeps them with the return.
"""

from collections.abc import Iterator

from fairlease.core.host import Host
from fairlease_schemas.host import CODES, MAX_CHECKS, MAX_OUTPUT, Check
from fairlease_schemas.ids import is_name
from fairlease_schemas.job import Problem
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import format_length

WARNING = 1
CLOCK_SLACK_MS = 60_000
"""So far ahead of the log a sender's clock may be; what is made later than that was not made yet."""


def return_problems(policy: Policy, host: Host, checks: tuple[Check, ...], now_ms: int) -> tuple[Problem, ...]:
    """What keeps the host from being given back: what is no check, else what the policy misses, then what is bad."""
    return tuple(_form(checks)) or (*_missing(policy, host, checks, now_ms), *_bad(policy, checks))


def _form(checks: tuple[Check, ...]) -> Iterator[Problem]:
    if len(checks) > MAX_CHECKS:
        yield _problem("checks", f"{len(checks)} checks", f"at most {MAX_CHECKS}", "leave out what nobody asks for")
        return
    seen: set[str] = set()
    for check in checks:
        field = f"checks.{check.name[:63]}"
        if not is_name(check.name):
            yield _problem("checks.name", check.name[:80], "1-63 of a-z 0-9 -", "give the check such a name")
        elif check.name in seen:
            yield _problem(field, "twice", "each check once", "leave all but the last out")
        if check.code not in CODES:
            yield _problem(field, str(check.code)[:30], "0-3", "let it end with 0 ok, 1 warning, 2 critical, 3 unknown")
        if len(check.output) > MAX_OUTPUT:
            limit = f"{MAX_OUTPUT} characters"
            yield _problem(field, f"{len(check.output)} characters", limit, "keep its last line")
        seen.add(check.name)


def _missing(policy: Policy, host: Host, checks: tuple[Check, ...], now_ms: int) -> Iterator[Problem]:
    """A problem for each check that the policy names and that is not there, not good or not new, in its order."""
    made = {check.name: check for check in checks}
    asked_ms = host.drain.asked_ms if host.drain is not None else 0
    since_ms, since = max((host.fault_ms, "its newest fault"), (asked_ms, "the request of its drain"))
    for name in policy.return_checks:
        check, field = made.get(name), f"checks.{name}"
        if check is None:
            yield _problem(field, "", "a check that the policy names", "make it, and hand it in with the return")
        elif check.code != 0:
            yield _found(check, "0 ok")
        elif check.at_ms <= since_ms:
            value = f"{format_length(since_ms - check.at_ms)} before {since}"
            yield _problem(field, value, f"made after {since}", "make it again")
        elif check.at_ms > now_ms + CLOCK_SLACK_MS:
            value = f"{format_length(check.at_ms - now_ms)} ahead of the log"
            yield _problem(field, value, "made by now", "set the clock of who made it, and make it again")


def _bad(policy: Policy, checks: tuple[Check, ...]) -> Iterator[Problem]:
    """A problem for each check beside the policy's that is worse than a warning, as they were handed in."""
    for check in checks:
        if check.name not in policy.return_checks and check.code > WARNING:
            yield _found(check, "0 ok or 1 warning")


def _found(check: Check, limit: str) -> Problem:
    value = f"{check.code} {CODES[check.code]}"
    return _problem(f"checks.{check.name}", value, limit, "mend what it found, and make it again")


def _problem(field: str, value: str, limit: str, way_out: str) -> Problem:
    return Problem(field=field, rule="7.4", value=value, limit=limit, way_out=way_out)
