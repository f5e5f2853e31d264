"""The bus's accounts as its configuration says them, made from the table (permissions.py) and the keys.

The text is written anew at every start of a cell, so that a new account or host is a restart and never an
edit. What is exported is exactly what somebody imports, and to them alone.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from fairlease.runtime import keys
from fairlease.runtime.permissions import CORE, HOLDERS, LOG, Identity, Plan, Way, identities
from fairlease_schemas.subjects import VERBS, Subjects

_BY_SUBJECT: Final = f"{VERBS}.DIRECT.GET."
_MANY: Final = ".CONSUMER.MSG.NEXT."
_MANY_S: Final = 35
"""Longer than any request for messages waits (runtime/follower.py)."""
_ALL_S: Final = 5
"""How long the replicas of a service may take to answer, each for itself."""
_ANSWER_WITHIN: Final = "1m"
_READ_IN_A_SECOND: Final = 50_000
"""Characters; a thousand hosts are two million and take 2 to 4 s where nothing else runs."""
_EXAMPLE: Final = """\
# The accounts of cell `lab` with two client accounts, two agents and an auditor, as `fairlease up` makes them.
# Written by `python -m fairlease.runtime.access > infra/nats/accounts.conf`; not by hand.
# The public halves of the keys come from the environment: NKEY_SERVICE_ADMISSION=U...
"""


class Access(NamedTuple):
    """What the bus is started with: the accounts, and in which of them each stream of a bus without them goes on."""

    text: str
    log_stream: str

    @property
    def reading_s(self) -> float:
        """How long a busy machine may take to read it: the server compares every import with those it leads to."""
        return len(self.text) / _READ_IN_A_SECOND

    def holder(self, stream: str) -> str:
        """The account in which that stream stands."""
        return LOG if stream == self.log_stream else CORE


def access(home: Path, subjects: Subjects, people: Iterable[Identity]) -> Access:
    """The accounts of a cell whose keys are in its state directory; those that are missing are made."""
    known = tuple(people)
    text = written(known, lambda name: f'"{keys.make(home, name).public()}"')
    return Access(text, subjects.log_stream)


def written(people: Iterable[Identity], public_key: Callable[[str], str]) -> str:
    """The block `accounts` of the bus's configuration.

    `public_key` writes that of an identity, quoted or as a variable. The same people in the same order give
    the same bytes.
    """
    known = tuple(people)
    lines = ["accounts {"]
    for account in HOLDERS:
        lines += [f'  "{account}": {{', "    jetstream: enabled", *_exports(account, known), "  }"]
    for one in known:
        rows = (_user(one, public_key(one.name)), _exact(one), _exports(one.name, known), _imports(one))
        lines += [f'  "{one.name}": {{', *(line for block in rows for line in block), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def example() -> str:
    """The accounts of a small cell, with variables of the environment for the public keys: infra/nats/accounts.conf."""
    agents = (("gpu-1", ("gpu-1",)), ("gpu-2", ("gpu-2",)))
    people = identities(Plan(cell="lab", accounts=("local", "ci"), agents=agents, auditors=("ours",)))
    return _EXAMPLE + written(people, lambda name: "$NKEY_" + name.upper().replace("-", "_"))


def may_publish(one: Identity) -> tuple[str, ...]:
    """Every subject it may publish to, but for the answers to questions it was asked."""
    return (*(way.name for way in one.sends), *one.says)


def may_subscribe(one: Identity) -> tuple[str, ...]:
    """Every subject it may subscribe to: its own inbox, what it hears, what it answers."""
    return (f"_INBOX.{one.name}.>", *(one.ears or (way.name for way in one.hears)), *one.answers)


def _user(one: Identity, key: str) -> list[str]:
    subscriptions = f"max_subscriptions: {one.subscriptions}"
    answers = f'allow_responses: {{ max: 1, expires: "{_ANSWER_WITHIN}" }}'
    return [
        f"    limits: {{ max_connections: {one.connections}, {subscriptions}, max_payload: {one.payload} }}",
        f"    users: [ {{ nkey: {key}, permissions: {{",
        f"      publish: {{ allow: {_listed(may_publish(one))} }}",
        f"      subscribe: {{ allow: {_listed(may_subscribe(one))} }}",
        *([f"      {answers}"] if one.answers else []),
        "    } } ]",
    ]


def _exact(one: Identity) -> list[str]:
    """Lets a message be asked for by its whole subject alone, where the last word of the row is fixed.

    The bus would hand out the newest of all that match a wildcard. With a `*` taken out of a word the subject has a
    word less, or another, and leads nowhere; one without stays as it is. A `>` would pass [measured], but is a wildcard
    as the last word alone. So who has no digest by heart gets nothing by it. A row whose last word is open is for who
    may read all that it says.
    """
    rows = []
    for name in (way.name for way in one.sends if way.name.startswith(_BY_SUBJECT)):
        if "*" not in name or name.endswith("*"):
            continue
        count, words = 0, []
        for word in name.split("."):
            count += word == "*"
            words.append(f"{{{{split({count},*)}}}}" if word == "*" else word)
        rows.append(f'      "{name}": "{".".join(words)}"')
    return ["    mappings: {", *rows, "    }"] if rows else []


def _exports(account: str, people: tuple[Identity, ...]) -> list[str]:
    """What others reach in this account, each subject with the names of those who do."""
    rows: list[str] = []
    for kind, ways_of in (("service", _sends), ("stream", _hears)):
        users: dict[str, list[str]] = {}
        for one in people:
            for way in ways_of(one):
                if way.account == account:
                    users.setdefault(way.subject, []).append(one.name)
        for subject, names in sorted(users.items()):
            more = _answering(subject) if kind == "service" else ""
            rows.append(f'      {{ {kind}: "{subject}", accounts: {_listed(names)}{more} }}')
    return ["    exports: [", *rows, "    ]"] if rows else []


def _imports(one: Identity) -> list[str]:
    rows = []
    for kind, ways in (("service", one.sends), ("stream", one.hears)):
        for way in ways:
            renamed = f', to: "{way.name}"' if way.name != way.subject else ""
            rows.append(f'      {{ {kind}: {{ account: "{way.account}", subject: "{way.subject}" }}{renamed} }}')
    return ["    imports: [", *rows, "    ]"]


def _answering(subject: str) -> str:
    """A question that has more than one answer says so, and for how long after the last."""
    is_of_replicas = ".ask." in subject and ".ask.agent-" not in subject
    seconds = _MANY_S if _MANY in subject else _ALL_S if is_of_replicas else 0
    return f', response_type: stream, response_threshold: "{seconds}s"' if seconds else ""


def _sends(one: Identity) -> tuple[Way, ...]:
    return one.sends


def _hears(one: Identity) -> tuple[Way, ...]:
    return one.hears


def _listed(words: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


if __name__ == "__main__":
    sys.stdout.write(example())
