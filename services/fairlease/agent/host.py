"""One host: what it shall run, by the newest order, made to agree with what it does run.

An order is the host's whole desired state, so nothing here is a reaction to a message: whenever an
order came, a run changed or a contract arrived, the two are compared and the difference is worked
off. That makes repeats, losses and restarts the same case. Surprising: a living run that the order
does not name is stopped, because its GPUs may already be another's; the log names a run until every
part of it was reported gone, so this only meets runs that were given up for lost.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from fairlease.agent import failure, layout, process, resume, stores
from fairlease.agent.contracts import Code, Command, ContractRefused, environment
from fairlease.agent.devices import Devices
from fairlease.agent.identity import IdentityRefused, User, Users, let_in
from fairlease.agent.lease import Lease
from fairlease.agent.outbox import Outbox
from fairlease.agent.record import Facts, Gone, clear
from fairlease.agent.rendezvous import LOOPBACK, Ports, PortTaken
from fairlease.agent.runs import LOG_BYTES, Run, Runs
from fairlease.agent.saved import Checkpoints
from fairlease.agent.source import SourceRefused, Sources
from fairlease.runtime.spans import Spans, order_span
from fairlease_schemas.codec import Unreadable, canonical, understood
from fairlease_schemas.ids import AttemptId, HostId, job_of
from fairlease_schemas.job import End, Mismatch, Rendezvous
from fairlease_schemas.orders import HostOrder, RunOrder
from fairlease_schemas.reports import HostUp, RunGone, RunReady, RunStarted

log = logging.getLogger("fairlease.agent")

Fetch = Callable[[str], Awaitable[Command]]
Refused = ContractRefused | stores.StoreRefused | resume.ResumeRefused | IdentityRefused | SourceRefused

KEPT_RUNS: Final = 500
"""Ended runs whose logs can still be read, per host."""
UNNAMED_MARGIN_MS: Final = 20_000
"""What is no longer ordered has no grace, for its GPUs may be another's: TERM now, and KILL after half of this."""
TRIES: Final = 3
"""So often is prepared what fails in a way that nobody thought of; then it is refused."""
OF_BEFORE: Final = "the machine was started anew since it was granted"
_RETRY_S: Final = 2.0
REGISTERED_S: Final = 30.0
"""How long after its start a host waits for an order for the life that it is, before it judges one for another."""
_ATTEMPT: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,126}")
_SEEN: Final = "order.json"
_MARK_CHARS: Final = 32
_FILES: Final = {"run-started": layout.STARTED, "run-gone": layout.GONE}


class _Seen(msgspec.Struct, frozen=True):
    """The newest order this host ever obeyed."""

    epoch: int
    position: int


class Ready(NamedTuple):
    """All that a run needs to start: what it executes, what it is told of its checkpoints, its code, its user."""

    command: Command
    place: dict[str, str]
    code: Path | None
    user: User | None


class Host:
    """The desired and the real state of one host. `home` is `<state>/agent/<host>`."""

    def __init__(
        self,
        devices: Devices,
        home: Path,
        fetch: Fetch,
        outbox: Outbox,
        sources: Sources,
        *,
        log_bytes: int = LOG_BYTES,
        kept: int = KEPT_RUNS,
        address: Callable[[], str] = lambda: LOOPBACK,
        users: Users | None = None,
        spans: Spans | None = None,
        registered_s: float = REGISTERED_S,
    ) -> None:
        """`address` says where other hosts reach this one; it may take its time, and is asked in another thread.

        With `users` every run is the user's to whom they map its account, else it is ours.
        """
        self.id: HostId = devices.host
        self.outbox = outbox
        self._devices = devices
        self._home = home
        self._stores = home.parent.parent / "stores"
        self._fetch = fetch
        self._sources = sources
        self._kept = kept
        self._runs = Runs(home, self._changed, log_bytes)
        self._ports = Ports(home)
        self._ask_address = address
        self._map = users
        self._spans = spans or Spans()
        self._address = LOOPBACK
        self._checkpoints = Checkpoints(outbox, self._runs.live)
        self._witness = failure.Witness(devices, home)
        self._gathering: set[asyncio.Task[None]] = set()
        self._boot = process.boot_id()
        self.incarnation = _life(home, self._boot)
        """Which life of this host it is."""
        self.lease = Lease(home, self._boot)
        self.announced = asyncio.Event()
        """Set once the bus knows which life this is."""
        self._order: HostOrder | None = None
        self._order_term = 0
        self._seen = (0, 0)
        self._learned: dict[AttemptId, Ready | Refused] = {}
        self._fetching: dict[AttemptId, asyncio.Task[None]] = {}
        self._failures: dict[AttemptId, int] = {}
        self._said: set[tuple[AttemptId, str]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._is_open = False
        self._registered_by_s = time.monotonic() + registered_s

    def open(self) -> None:
        """Adopts what is on disk, says that the host is up, and then all that was not acknowledged before."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._seen = self._remembered()
        self.lease.open()
        self._ports.open()
        self._sources.open()
        self._say_up()
        self._runs.open()
        if self._map is not None:
            let_in(self._home.parent, self._home, self._home / "runs")
        self._is_open = True
        for run, kind in self._unheard():
            self._say(run, kind)
        self._checkpoints.open()

    def close(self) -> None:
        """Lets go of everything; runs go on."""
        self._is_open = False
        if self._again is not None:
            self._again.cancel()
        for task in (*self._fetching.values(), *self._gathering):
            task.cancel()
        for attempt in list(self._learned):
            self._unlearn(attempt)
        self._witness.close()
        self._checkpoints.close()
        self._ports.close()
        self._runs.close()

    def states(self) -> list[str]:
        """Of each run kept here whether it is `starting`, `running` or `over`."""
        return [
            "over" if run.gone is not None else "running" if run.is_started else "starting" for run in self._runs.all()
        ]

    def obey(self, order: HostOrder) -> None:
        """Takes an order of this host, unless a newer one was ever taken."""
        stands = (order.epoch, order.position)
        if order.host != self.id or stands < self._seen:
            log.info("%s: an order of %s at %s is not for us or not the newest", self.id, order.host, stands)
            return
        self._order, self._order_term = order, self.lease.term
        if stands > self._seen:
            self._seen = stands
            self._remember(is_durable=False)
            if not self._is_for_this_boot():
                self._say_up()  # another life's word came after ours, or ours is still on its way
        self.lease.set_length(order.lease_ms)
        self._agree()

    def run(self, attempt: AttemptId) -> Run | None:
        """A run whose log can be read."""
        return self._runs.get(attempt)

    def _remember(self, *, is_durable: bool) -> bool:
        """Writes down which order is the newest; False when the disk refuses, which older orders could then abuse."""
        try:
            layout.write_whole(str(self._home / _SEEN), msgspec.json.encode(_Seen(*self._seen)), is_durable=is_durable)
        except OSError as error:
            log.warning("%s: the newest order cannot be noted: %s", self.id, error)
            return False
        return True

    def _remembered(self) -> tuple[int, int]:
        """The newest order an earlier agent took; (0, 0) for none, and for a file that a power cut left empty."""
        try:
            seen = understood(layout.content(str(self._home / _SEEN)), _Seen)
        except (FileNotFoundError, layout.Spoiled, Unreadable):
            return (0, 0)
        return seen.epoch, seen.position

    # desired against real ------------------------------------------------------------------------
    def _agree(self) -> None:
        """Works off the difference between the order and the runs. Does nothing when there is none."""
        if self._order is None or not self._is_open:
            return
        named = {wanted.attempt for wanted in self._order.runs}
        for run in self._runs.live():
            if run.attempt not in named:
                self._stop(run, "no longer ordered", 0, UNNAMED_MARGIN_MS)
        held = {gpu for run in self._runs.live() for gpu in run.facts.gpus}
        for wanted in self._order.runs:
            known = self._known(wanted)
            if known is None:
                if self._begin(wanted, held):
                    held.update(wanted.gpus)
            elif wanted.stop:
                self._stop(known, wanted.stop, wanted.grace_ms, wanted.margin_ms)
        for attempt in self._fetching.keys() - named:
            self._fetching.pop(attempt).cancel()
        for attempt in self._failures.keys() - named:
            del self._failures[attempt]
        for attempt in self._learned.keys() - named:
            self._unlearn(attempt)
            self._said.discard((attempt, "run-ready"))
        self._ports.forget_but({attempt for attempt in named if self._runs.get(attempt) is None})
        self._prune(named)

    def _known(self, wanted: RunOrder) -> Run | None:
        """The run of this attempt, if it was ever begun here."""
        if _ATTEMPT.fullmatch(wanted.attempt) is None:
            return None
        run = self._runs.get(wanted.attempt)
        if run is None and (run := self._runs.find(self._facts(wanted))) is not None:
            self._said.update((run.attempt, kind) for kind in _FILES if run.directory.is_acked(kind))
            self._changed(run)
        return run

    def _begin(self, wanted: RunOrder, held: set[str]) -> bool:
        """Starts an attempt, or as much of the way there as is open: its contract fetched, its GPUs free.

        True when it has its GPUs now or waits for them, so that nobody behind it in the order takes them.
        """
        if _ATTEMPT.fullmatch(wanted.attempt) is None:
            log.error("%s: an order names attempt %r, which cannot be a directory", self.id, wanted.attempt[:80])
            return False
        if wanted.is_of_before or not self._is_for_this_boot():
            return self._judge_of_before(wanted)
        if wanted.stop:
            return self._refuse(wanted, End.CANCELLED, "never started")
        unknown = [gpu for gpu in wanted.gpus if gpu not in self._devices.inventory().gpus]
        if unknown:
            return self._refuse(wanted, End.START_FAILED, f"GPU {unknown[0]} is not on this host")
        learned = self._learned.get(wanted.attempt)
        if isinstance(learned, Refused):
            mismatches = learned.mismatches if isinstance(learned, resume.ResumeRefused) else ()
            return self._refuse(wanted, End.START_FAILED, str(learned), mismatches)
        if learned is None:
            if wanted.attempt not in self._fetching:
                task = asyncio.get_running_loop().create_task(self._learn(wanted))
                self._fetching[wanted.attempt] = task
        elif held.isdisjoint(wanted.gpus) and self._may_start():
            return self._start(wanted, learned) if wanted.is_go else self._wait_for_others(wanted)
        return True

    def _judge_of_before(self, wanted: RunOrder) -> bool:
        """Refuses what was granted to another life of this host, once it is known that it was.

        An order for another life is no word of that yet: the next one, which comes when this life is registered, says
        of each run whether it is of before. What is refused earlier would be granted here again, and refused again.
        But a host that is not taken as it says gets no other order, so that is not waited for without end.
        """
        left_s = self._registered_by_s - time.monotonic()
        if wanted.is_of_before or left_s <= 0:
            return self._refuse(wanted, End.FAULT, OF_BEFORE)
        self._look_again(left_s)
        return True

    def _is_for_this_boot(self) -> bool:
        """Whether the order was made for this life of the host: what others began is gone, and begins nowhere here."""
        return self._order is not None and self._order.incarnation in ("", self.incarnation)

    def _may_start(self) -> bool:
        """Whether the host has its lease, and the order came in its present term: one from before may be over."""
        return self.lease.is_valid and self._order_term == self.lease.term

    def _wait_for_others(self, wanted: RunOrder) -> bool:
        """Says, once, that this part of a gang could begin; its first host says where they meet (1.15).

        False when it is over instead: the others may have been told of a place that has become somebody else's.
        """
        if (wanted.attempt, "run-ready") in self._said:
            return True
        at = None
        if wanted.rank == 0:
            try:
                at = Rendezvous(address=self._address, port=self._ports.keep(wanted.attempt, is_noted=True))
            except PortTaken as taken:
                return self._refuse(wanted, End.FAULT, str(taken))
            except OSError as error:
                self._try_again(wanted.attempt, error)
                return True
        self._said.add((wanted.attempt, "run-ready"))
        ready = RunReady(attempt=wanted.attempt, token=wanted.token, rendezvous=at)
        self.outbox.put("run-ready", canonical(ready), lambda: None)
        return True

    def _start(self, wanted: RunOrder, ready: Ready) -> bool:
        """Starts an attempt; False when it is over instead."""
        name, command, at = wanted.attempt, ready.command, wanted.rendezvous
        facts = msgspec.structs.replace(self._facts(wanted), has_terminal=command.terminal)
        try:
            if len(wanted.hosts) == 1:
                at = Rendezvous(address=LOOPBACK, port=self._ports.keep(name, is_noted=False))
            elif wanted.rank == 0 and self._ports.is_noted(name):
                self._ports.keep(name, is_noted=True)  # an agent that was away meanwhile may have lost it
            env = environment(wanted, command.env, self._devices, dict(os.environ), at, ready.user) | ready.place
            self._runs.start(
                facts,
                command.command,
                env,
                signal_name=command.checkpoint.signal,
                code=ready.code,
                at_gate=lambda: self._ports.let_go(name),
                user=ready.user,
            )
        except PortTaken as taken:
            return self._refuse(wanted, End.FAULT, str(taken))
        except OSError as error:
            self._unlearn(name)
            self._try_again(name, error)
        return True

    def _refuse(self, wanted: RunOrder, end: End, detail: str, mismatches: tuple[Mismatch, ...] = ()) -> bool:
        """Writes down that it is over before it began; False, because it needs no GPUs."""
        try:
            self._runs.refuse(self._facts(wanted), Gone(end=end, detail=detail, mismatches=mismatches))
        except OSError as error:
            self._try_again(wanted.attempt, error)
        return False

    def _stop(self, run: Run, reason: str, grace_ms: int, margin_ms: int) -> None:
        try:
            self._runs.stop(run, reason, grace_ms, margin_ms)
        except OSError as error:
            self._try_again(run.attempt, error)

    def _try_again(self, attempt: AttemptId, error: Exception) -> None:
        if isinstance(error, OSError):
            log.warning("%s: the state directory refuses, trying again: %s", attempt, error)
        else:
            log.error("%s: cannot be prepared, trying again", attempt, exc_info=error)
        self._look_again(_RETRY_S)

    def _look_again(self, in_s: float) -> None:
        """Compares again then, or earlier where somebody asked for that."""
        loop = asyncio.get_running_loop()
        if self._again is not None:
            if loop.time() < self._again.when() <= loop.time() + in_s:
                return
            self._again.cancel()
        self._again = loop.call_later(in_s, self._agree)

    def _facts(self, wanted: RunOrder) -> Facts:
        return Facts(
            attempt=wanted.attempt,
            job=wanted.job,
            token=wanted.token,
            digest=wanted.digest,
            gpus=wanted.gpus,
            hosts=wanted.hosts,
            rank=wanted.rank,
            boot=self._boot,
            grace_ms=wanted.run_grace_ms,
            margin_ms=wanted.margin_ms,
            account=wanted.account,
        )

    async def _learn(self, wanted: RunOrder) -> None:
        """Learns what a run executes, whose it is, its place for checkpoints and its code; or why it cannot start."""
        code: Path | None = None
        begun_ns = time.time_ns()
        try:
            command = await self._fetch(wanted.digest)
            user = await self._user_of(wanted)
            place = await self._placed(wanted, command, user)
            code = await self._brought(wanted, command.source, user) if command.source is not None else None
            if wanted.rank == 0 and not wanted.is_go:
                self._address = await stores.aside(self._ask_address)
            self._learned[wanted.attempt], code = Ready(command, place, code, user), None
            self._tell("contract", wanted.attempt, (begun_ns, time.time_ns()), order_span(wanted.attempt, self.id))
        except (ContractRefused, IdentityRefused, SourceRefused, stores.StoreRefused, resume.ResumeRefused) as refused:
            self._learned[wanted.attempt] = refused
        except Exception as error:  # noqa: BLE001 - nobody else would ever begin this run, or tell why it cannot
            self._fetching.pop(wanted.attempt, None)
            self._try_again(wanted.attempt, error)
            if isinstance(error, OSError) or self._counts_failure(wanted.attempt) < TRIES:
                return
            self._learned[wanted.attempt] = ContractRefused(f"it cannot be prepared here: {error!r:.200}")
        finally:
            if code is not None:  # it was called off with the code in its hands
                clear(code)
        self._fetching.pop(wanted.attempt, None)
        self._agree()

    def _counts_failure(self, attempt: AttemptId) -> int:
        self._failures[attempt] = self._failures.get(attempt, 0) + 1
        return self._failures[attempt]

    def _unlearn(self, attempt: AttemptId) -> None:
        """Forgets what was fetched for an attempt that does not start now."""
        learned = self._learned.pop(attempt)
        if isinstance(learned, Ready) and learned.code is not None and learned.code.exists():
            clear(learned.code)

    async def _brought(self, wanted: RunOrder, code: Code, user: User | None) -> Path:
        """The directory with a run's code; tries again while the disk refuses."""
        while True:
            try:
                return await self._sources.stage(wanted.attempt, wanted.account, code, user)
            except OSError as error:
                log.warning("%s: the disk refuses its code, trying again: %s", wanted.attempt, error)
            await asyncio.sleep(_RETRY_S)

    async def _user_of(self, wanted: RunOrder) -> User | None:
        """Whose processes these are, by the map; None where there is none, and they are the agent's own user's."""
        users = self._map
        return await stores.aside(lambda: users.user_of(wanted.account)) if users is not None else None

    async def _placed(self, wanted: RunOrder, command: Command, user: User | None) -> dict[str, str]:
        """What a run is told of its checkpoints' place; tries again while the store does not answer."""
        while True:
            try:
                return await stores.aside(lambda: self._looked_up(wanted, command, user))
            except OSError as error:
                if (refused := stores.refusal(command.checkpoint.uri, error)) is not None:
                    raise refused from error
                log.warning("%s: its store refuses, trying again: %s", wanted.attempt, error)
            await asyncio.sleep(_RETRY_S)

    def _looked_up(self, wanted: RunOrder, command: Command, user: User | None) -> dict[str, str]:
        inventory = self._devices.inventory()
        digits = wanted.attempt.rpartition("-a")[2]
        number = int(digits) if digits.isdigit() else 0
        told = stores.environment(
            command.checkpoint.uri,
            wanted.job,
            self._stores,
            can_make=inventory.is_simulated,
            owner=user,
            clean_for=number if wanted.is_clean else 0,
        )
        place = told.get("FAIRLEASE_CHECKPOINT_DIR")
        manifest = resume.newest(Path(place)) if place and command.resumable and number else None
        if manifest is not None:
            state, hosts = command.state or {}, len(wanted.hosts)
            resume.check(manifest, state, attempt=number, hosts=hosts, gpu_model=inventory.model)
        return told

    # what it says --------------------------------------------------------------------------------
    def _say_up(self) -> None:
        up = HostUp(incarnation=self.incarnation, inventory=self._devices.inventory())
        self.outbox.put("host-up", canonical(up), self.announced.set)

    def _changed(self, run: Run) -> None:
        if not self._is_open:
            return
        if run.is_started:
            self._say(run, "run-started")
        if run.gone is not None:
            self._say(run, "run-gone")
            asyncio.get_running_loop().call_soon(self._agree)

    def _unheard(self) -> list[tuple[Run, str]]:
        """What an earlier agent of this host may not have got across, in the order in which it happened.

        All else that happened is said. From now on only memory tells what was: what a job puts there tells nothing.
        Clocks of file systems tick slowly, so a run that was short started and ended in one tick.
        """
        unheard = []
        for run in self._runs.all():
            for step, (kind, name) in enumerate(_FILES.items()):
                is_so = run.is_started if kind == "run-started" else run.gone is not None
                if is_so and run.directory.is_acked(kind):
                    self._said.add((run.attempt, kind))
                elif is_so:
                    unheard.append((run.directory.written_ns(name), run.attempt, step, run, kind))
        unheard.sort(key=lambda item: item[:3])
        return [(run, kind) for *_, run, kind in unheard]

    def _say(self, run: Run, kind: str) -> None:
        """Hands a report to the outbox, unless the bus has it or it is on its way."""
        if (run.attempt, kind) in self._said:
            return
        self._said.add((run.attempt, kind))
        if kind == "run-started":
            times_ns = (run.directory.written_ns(_FILES[kind]), time.time_ns())
            self._tell("process", run.attempt, times_ns, self._span("contract", run.attempt))
            body = canonical(RunStarted(attempt=run.attempt, token=run.facts.token))
            self.outbox.put(kind, body, lambda: self._heard(run, kind))
            return
        try:
            self._checkpoints.look(run, is_last=True)
        except Exception:
            log.exception("%s: its end is told without a last look at its checkpoints", run.attempt)
        gone = run.gone
        assert gone is not None
        if not failure.is_failure(gone):
            self._say_gone(run, gone, "")
            return
        task = asyncio.get_running_loop().create_task(self._bear_witness(run, gone))
        self._gathering.add(task)
        task.add_done_callback(self._gathering.discard)

    def _span(self, step: str, attempt: AttemptId) -> str:
        return f"{step} {attempt} {self.id}"

    def _tell(self, step: str, attempt: AttemptId, times_ns: tuple[int, int], after: str) -> None:
        """A span of this host's part of an attempt: its contract is here, its process runs."""
        name, what = f"agent {step}", self._span(step, attempt)
        self._spans.add(job_of(attempt), name, what, times_ns, [after], {"fairlease.host": self.id})

    async def _bear_witness(self, run: Run, gone: Gone) -> None:
        """Says that a run ended badly, behind the evidence of it: who reads of the end shall find that there."""
        digest, body = "", b""
        try:
            digest, body = await self._witness.evidence(run, gone)
        except Exception:
            log.exception("%s: its end is told without evidence", run.attempt)
        if body:
            self.outbox.put(failure.KIND, body, lambda: None, tries=failure.TRIES)
        self._say_gone(run, gone, digest)

    def _say_gone(self, run: Run, gone: Gone, evidence: str) -> None:
        body = RunGone(
            attempt=run.attempt,
            token=run.facts.token,
            end=gone.end,
            exit_code=gone.exit_code,
            detail=gone.detail,
            mismatches=gone.mismatches,
            evidence=evidence,
        )
        self.outbox.put("run-gone", canonical(body), lambda: self._heard(run, "run-gone"))

    def _heard(self, run: Run, kind: str) -> None:
        try:
            run.directory.ack(kind)
        except OSError as error:
            log.warning("%s: its report will be repeated: %s", run.attempt, error)
        if kind == "run-gone" and self._order is not None:
            self._prune({wanted.attempt for wanted in self._order.runs})

    def _prune(self, named: set[AttemptId]) -> None:
        """Removes the oldest ended runs beyond those kept: gone, acknowledged, and named by no order."""
        ended = [run for run in self._runs.all() if run.gone is not None and run.attempt not in named]
        excess = len(ended) - self._kept
        spare = [run for run in ended if run.directory.is_acked("run-gone")] if excess > 0 else []
        if not spare:
            return
        # An older order, read again after a power cut, would start them anew: first it must be known as old.
        if not self._remember(is_durable=True):
            return
        for run in sorted(spare, key=lambda run: (run.directory.written_ns(layout.GONE), run.attempt))[:excess]:
            self._runs.forget(run)
            self._checkpoints.forget(run.attempt)
            self._said -= {(run.attempt, kind) for kind in ("run-ready", "run-started", "run-gone")}


def _life(home: Path, boot: str) -> str:
    """The kernel's boot id; behind a restore with a mark, because nothing here knows what this boot began before."""
    try:
        return f"{boot}-{layout.content(str(home.parent / layout.LIFE)).decode('ascii', 'replace')[:_MARK_CHARS]}"
    except FileNotFoundError:
        return boot
    except layout.Spoiled:
        return f"{boot}-spoiled"
