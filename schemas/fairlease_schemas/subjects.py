"""Every subject and stream of a cell, in one place (log.md L1).

`fl.<cell>.…` in lower case; a token is `a-z 0-9 - _`. Nothing else in the tree spells a subject.
"""

from typing import Final

import msgspec

SCOPES: Final = {
    "admission": "intake",
    "ledger": "intake",
    "ranker": "alloc",
    "placement": "alloc",
    "preemption": "alloc",
    "health": "alloc",
}
"""Which scope each deciding service writes in; the explainer writes nothing in the log."""

SERVICES: Final = (*SCOPES, "explainer")

TIMED: Final = ("admission", "ranker", "health")
"""Services that arm timers and read them, each in a stream of its own."""

BEGIN: Final = "begin"
"""In the place of a session's name, which is longer: the question for one."""

VERBS: Final = "fairlease.js"
"""Where the verbs of JetStream are asked: `fairlease.js.STREAM.INFO.FL_LAB_LOG`, the same in every cell."""


class Subjects(msgspec.Struct, frozen=True):
    """The names of one cell."""

    cell: str

    # streams -----------------------------------------------------------------------------------
    def _stream(self, name: str) -> str:
        return f"FL_{self.cell.upper().replace('-', '_')}_{name}"

    @property
    def log_stream(self) -> str:
        return self._stream("LOG")

    @property
    def reports_stream(self) -> str:
        return self._stream("REPORTS")

    @property
    def orders_stream(self) -> str:
        return self._stream("ORDERS")

    @property
    def leases_stream(self) -> str:
        return self._stream("LEASES")

    @property
    def timers_prefix(self) -> str:
        return self._stream("TIMERS_")

    def timers_stream(self, service: str) -> str:
        """Of one service alone: who may publish to it may also sweep it (docs/security.md)."""
        return self.timers_prefix + service.upper()

    @property
    def feed_stream(self) -> str:
        return self._stream("FEED")

    @property
    def contracts_stream(self) -> str:
        return self._stream("CONTRACTS")

    @property
    def bundles_stream(self) -> str:
        return self._stream("BUNDLES")

    @property
    def evidence_stream(self) -> str:
        return self._stream("EVIDENCE")

    @property
    def telemetry_stream(self) -> str:
        return self._stream("TELEMETRY")

    @property
    def inbox_prefix(self) -> str:
        return self._stream("INBOX_")

    def inbox_stream(self, account: str) -> str:
        return self.inbox_prefix + account

    def account_of_inbox(self, stream: str) -> str:
        """The account whose inbox this stream is; ValueError for another stream."""
        if not stream.startswith(self.inbox_prefix):
            raise ValueError(f"{stream} is not an inbox of cell {self.cell}")
        return stream[len(self.inbox_prefix) :]

    # subjects ----------------------------------------------------------------------------------
    def log(self, service: str, record: str) -> str:
        return f"fl.{self.cell}.log.{SCOPES[service]}.{service}.{record}"

    def log_scope(self, scope: str) -> str:
        """All records of a scope: the subject whose last sequence fences an append."""
        return f"fl.{self.cell}.log.{scope}.>"

    def log_all(self) -> str:
        return f"fl.{self.cell}.log.>"

    def command(self, account: str, verb: str, host: str = "") -> str:
        """A command; of one about a host the bus can see which, where the subject ends in it."""
        return f"fl.{self.cell}.cmd.{account}.{verb}" + (f".{host}" if host else "")

    def report(self, host: str, kind: str) -> str:
        return f"fl.{self.cell}.report.{host}.{kind}"

    def telemetry(self, host: str, kind: str) -> str:
        return f"fl.{self.cell}.telemetry.{host}.{kind}"

    def order(self, host: str) -> str:
        return f"fl.{self.cell}.order.{host}"

    def lease(self, host: str) -> str:
        return f"fl.{self.cell}.lease.{host}"

    def timer(self, service: str, due_ms: int) -> str:
        return f"fl.{self.cell}.timer.{service}.{due_ms}"

    def schedule(self, service: str, due_ms: int) -> str:
        """Where a timer is armed; the bus publishes to `timer(...)` when it falls due."""
        return f"fl.{self.cell}.schedule.{service}.{due_ms}"

    def contract(self, digest: str) -> str:
        """A contract's body by its digest; the last word is for who asks with wildcards (runtime/access.py)."""
        return f"fl.{self.cell}.contract.{digest}.body"

    def bundle(self, account: str, digest: str, piece: int | str) -> str:
        """A piece of a code bundle; `digest` is its 64 digits, the last word there as that of a contract."""
        return f"fl.{self.cell}.bundle.{account}.{digest}.{piece}.piece"

    def evidence(self, host: str, digest: str) -> str:
        """What a host's agent keeps of a run that went wrong."""
        return f"fl.{self.cell}.evidence.{host}.{digest}"

    def answer(self, account: str, seq: int) -> str:
        return f"fl.{self.cell}.answer.{account}.{seq}"

    def feed(self, budget: str, job: str, tag: str) -> str:
        return f"fl.{self.cell}.feed.{budget}.{job}.{tag}"

    def host_feed(self, host: str, tag: str) -> str:
        """Beside the budgets' feeds, of which none can have such a name."""
        return self.feed("_hosts", host, tag)

    def attach(self, host: str, account: str, session: str) -> str:
        """What an account says to the terminals of a host: `BEGIN` a session, and then type in it."""
        return f"fl.{self.cell}.attach.{host}.{account}.{session}"

    def shown(self, host: str, account: str, output: str) -> str:
        """What terminals of a host show to an account; no stream keeps it."""
        return f"fl.{self.cell}.shown.{host}.{account}.{output}"

    def ask(self, service: str, question: str) -> str:
        return f"fl.{self.cell}.ask.{service}.{question}"


def last_token(subject: str) -> str:
    """The verb, kind, tag or due time at the end of a subject."""
    return subject.rpartition(".")[2]


def token(subject: str, index: int) -> str:
    """Token `index` (0-based) of a subject; empty when it has fewer."""
    parts = subject.split(".")
    return parts[index] if index < len(parts) else ""
