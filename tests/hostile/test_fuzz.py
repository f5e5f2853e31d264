"""Every reader of what others wrote, fed any bytes and valid samples that were bent: it gives an answer, or its own no.

Each reader stands in a table with the one exception it may raise, if any. `make test` draws a few hundred inputs for
each, `make test-long` many, and prints how many.
"""

import argparse
import asyncio
import base64
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import strategies as st

from fairlease.agent import contracts, failure, identity, layout, questions, resume, tarball
from fairlease.agent import service as agent
from fairlease.agent.attach import Session, Sessions
from fairlease.agent.bundles import Bundles
from fairlease.agent.record import RunDirectory
from fairlease.agent.unpacking import BundleRefused, unpack
from fairlease.cli import failure as shown_failure
from fairlease.cli import parser, up
from fairlease.cli.document import DocumentError, read_document
from fairlease.cli.exits import CommandError
from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease.core.world import World
from fairlease.explainer.questions import AskPlan, handlers
from fairlease.health import leases
from fairlease.runtime import backup, edge
from fairlease.runtime.backup import BadBackup
from fairlease.runtime.bus import Message
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import labels_in, url_in
from fairlease.runtime.snapshot import Snapshot, SnapshotStore
from fairlease.runtime.strict import strict_json
from fairlease_schemas import codec, commands, example, orders, reports
from fairlease_schemas.attach import AttachAnswer, AttachQuestion, Shown, Taken, Typed
from fairlease_schemas.bundle import BundleManifest
from fairlease_schemas.contract import body, read_contract
from fairlease_schemas.credential import kind_of
from fairlease_schemas.envelope import Answer, Submitted
from fairlease_schemas.failure import FailureEvidence
from fairlease_schemas.units import parse_length_ms, parse_memory_mib
from tests.dsl.cell import Cell
from tests.hostile.corpus import entries, made
from tests.hostile.counted import FUZZED
from tests.hostile.test_contracts import GOOD, sent
from tests.hostile.test_messages import OWNERS, SUBJECTS, Deaf
from tests.laws.anything import anything
from tests.laws.examine import MANY, SEED, examine

MOST_CPU_S = 1.0
"""No reader looks at a few KiB for longer, however slow the machine; most take microseconds."""
INPUTS = int(os.environ.get("FAIRLEASE_FUZZ_INPUTS") or 20_000)
"""So many bent samples are fed to every reader in `make test-long`."""
POOL = 300
Recorder = Callable[[str, object], None]
at_length = pytest.mark.parametrize("examples", [60, pytest.param(MANY, id="many", marks=pytest.mark.long)])
TOKENS = (
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b"\\",
        b":",
        b",",
        b"\n",
        b"\0",
        b"\xff",
        b"\x1b[2J",
        b"1e999",
        b"NaN",
        b"-",
        b"null",
    ),
    *(
        b"true",
        b"1.5",
        b"\\ud800",
        b"\xed\xa0\x80",
        b"\xe2\x80\xae",
        b"9" * 400,
        b"[" * 2_000,
        b'{"a":' * 2_000,
        b'"x":' + b"[" * 2_000 + b"]" * 2_000 + b",",
        b'{"x":' + b"[" * 2_000,
        b"&a ",
    ),
    *(b"*a", b"!!", b"%", b"---\n", b"../", b"\xef\xbb\xbf", b'"type":"run-gone",', b"e\xcc\x81"),
)


class Reader(NamedTuple):
    """What reads, valid samples of what it reads, and what it may raise."""

    read: Callable[[bytes], object]
    samples: st.SearchStrategy[bytes]
    raises: tuple[type[Exception], ...] = ()


def bent(samples: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes; or a sample with up to six pieces put in, taken out, said again or written over."""
    piece = st.sampled_from(TOKENS) | st.binary(max_size=4)
    step = st.tuples(st.sampled_from(("put", "cut", "again", "over")), st.integers(0, 2**16), st.integers(0, 40), piece)

    def made_of(drawn: tuple[bytes, list[tuple[str, int, int, bytes]]]) -> bytes:
        data, steps = drawn
        for what, where, length, new in steps:
            at = where % (len(data) + 1)
            after = at + {"put": 0, "again": 0, "cut": length, "over": len(new)}[what]
            data = data[:at] + {"again": data[at : at + length], "cut": b""}.get(what, new) + data[after:]
        return data

    return st.binary(max_size=200) | st.tuples(samples, st.lists(step, max_size=6)).map(made_of)


def bent_by(chance: random.Random, samples: list[bytes]) -> bytes:
    """One of the samples with up to four pieces of tokens, of other samples or of its own put over or into it."""
    data = bytearray(chance.choice(samples))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        what, length = chance.randrange(5), chance.randrange(1, 40)
        if what == 0:
            del data[at : at + length]
        elif what == 1:
            data[at:at] = chance.choice(TOKENS)
        elif what == 2:
            data[at : at + length] = chance.randbytes(chance.randrange(4))
        elif what == 3:
            other = chance.choice(samples)
            data[at:at] = other[chance.randrange(len(other) + 1) :][:length]
        elif at < len(data):
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


class Fed:
    """A reader, and what became of all that it was fed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._inputs = self._refused = 0
        self._slowest_s = 0.0

    def answers(self, data: bytes) -> None:
        """Fails when the reader raises what it does not say, or looks at the data for too long."""
        self._inputs += 1
        began_s = time.thread_time()
        try:
            self._reader.read(data)
        except self._reader.raises:
            self._refused += 1
        self._slowest_s = max(self._slowest_s, time.thread_time() - began_s)
        assert self._slowest_s < MOST_CPU_S

    def told(self, name: str) -> dict[str, object]:
        """For the summary of the run."""
        slowest_ms = self._slowest_s * 1_000
        return {"reader": name, "inputs": self._inputs, "refused": self._refused, "slowest_ms": slowest_ms}


def either(*samples: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(samples)


def written(kind: Any) -> st.SearchStrategy[bytes]:  # noqa: ANN401 - any type of the schemas
    """Any message of that type, as it is sent."""
    return anything(kind).map(msgspec.json.encode)


def as_text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """A reader of words: the command line gives it what was typed, halves of letters and all."""
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


# the readers ------------------------------------------------------------------------------------------
def contract_file(data: bytes) -> None:
    read_contract(read_document(data).data)


def message(verb: str, *, is_report: bool = False) -> Callable[[bytes], object]:
    """A message to the service that owns it: its edge, its decision, the record of it. None of them raises."""
    subject = SUBJECTS.report("host-001", verb) if is_report else f"fl.lab.cmd.ann.{verb}"
    stream = SUBJECTS.reports_stream if is_report else SUBJECTS.inbox_stream("ann")

    def read(data: bytes) -> None:
        said = edge.read_said(Message(stream, 7, WORLD.log_time_ms + 1, subject, data))
        if isinstance(said, commands.SubmitJob):
            said, _ = sent(bytes(said.contract))
        decided(OWNERS[verb], Answer(stream=stream, seq=7, time_ms=WORLD.log_time_ms + 1, who="ann", said=said))

    return read


def decided(service: str, answer: Answer) -> None:
    decision = RULES[service].decide(WORLD, (answer,))
    if decision is not None:
        record = codec.sealed(record_of(WORLD, service, decision))[1]
        after = World.load(WORLD.dump())
        after.apply(codec.read_record(record), after.position + 1)


def question(name: str) -> Callable[[bytes], object]:
    async def past(_at: int) -> World:
        return WORLD

    handler = handlers(lambda: WORLD, past)[name]
    return lambda data: asyncio.run(handler(data))


def order(data: bytes) -> None:
    agent._obey(Deaf(), data)  # type: ignore[arg-type]  # all that is asked of a host


def contract_body(data: bytes) -> object:
    return contracts.read(data, hashlib.sha256(data).hexdigest())


class _Nobody:
    """A host that has no runs."""

    id = "host-001"

    def run(self, _attempt: str) -> None:
        return None


NOBODY: Any = _Nobody()


def unpacked(data: bytes) -> None:
    shutil.rmtree("into", ignore_errors=True)
    unpack(io.BytesIO(data), Path("into"))


def bundle_manifest(data: bytes) -> object:
    async def piece(*_: object) -> bytes:
        return data

    return asyncio.run(Bundles(Path(), piece, patience_s=0)._manifest("ann", "0" * 64))


def asked_to_attach(data: bytes) -> object:
    async def answered() -> object:
        return await Sessions(NOBODY, Deaf(), SUBJECTS).attach("ann", data)  # type: ignore[arg-type]  # nobody is attached

    return asyncio.run(answered())


class _Writer:
    """A terminal that takes everything."""

    transport: Any = property(lambda self: self)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, _data: bytes) -> None:
        return None


def typed(data: bytes) -> object:
    async def taken() -> object:
        asked = AttachQuestion(attempt="a", output="x")
        run: Any = type("Run", (), {"directory": RunDirectory(Path())})
        writer: Any = _Writer()
        return Session(Deaf(), asked, "fl.lab.shown.host-001.ann.x", run, asyncio.StreamReader(), writer).take(data)  # type: ignore[arg-type]  # nobody listens

    return asyncio.run(taken())


def evidence_shown(data: bytes) -> object:
    return shown_failure.with_evidence(b"{}", [shown_failure.Kept("a", "h", "d", data, None)])


def a_tar() -> bytes:
    """A directory, a file in it, a link to it, and a name that is long."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in (("d", b"5"), ("d/f", b"0"), ("to", b"2"), ("n" * 200, b"0")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, "d/f" if kind == b"2" else "", 3 if kind == b"0" else 0
            tar.addfile(info, io.BytesIO(b"abc"))
    return written.getvalue()


def in_file(name: str, read: Callable[[], object]) -> Callable[[bytes], object]:
    """A reader of a file in the working directory, which is the test's own."""

    def reader(data: bytes) -> object:
        Path(name).write_bytes(data)
        return read()

    return reader


def backup_sample() -> bytes:
    state, where = Path("state"), Path("sample.backup")
    (state / "jetstream").mkdir(parents=True, exist_ok=True)
    (state / "jetstream/1.blk").write_bytes(b"a" * 600)
    where.unlink(missing_ok=True)
    known = {"form": 1, "cell": "lab", "release": "", "made_at_ms": 0, "log_position": 1, "log_sha256": ""}
    files = backup.members_of(state)
    backup.write(where, backup.Manifest(**known, has_keys=False, files=files), state)
    return where.read_bytes()


backup_read = in_file("cell.backup", lambda: backup.judge(Path("cell.backup")))


def snapshot_sample() -> bytes:
    place = Path("sample")
    SnapshotStore(place, "v").store(Snapshot(epoch=1, position=5, head=b"h" * 32, state=b"state"))
    return next(place.glob("*.fold")).read_bytes()


def _world() -> World:
    cell = Cell().hosts(2).budgets(a=1)
    for name in ("r1", "r2"):
        cell.submit(name, hosts=2, gpus_per_host=8)
    return cell.world


WORLD = _world()
BOOT = "b" * 32
CONTRACT = json.dumps(GOOD).encode()
YAML = b"apiVersion: fairlease/v1\nkind: Job\nspec:\n  budget: a\n  min_runtime: 30m\n  timeout: 1h\n  env: {A: b}\n"
SUBMISSION = b'{"type":"submit-job","request_id":"r","contract":' + CONTRACT + b"}"
MANIFEST = (
    b'{"attempt":1,"step":5,"complete":true,"world_size":2,"state":{"commit":"a"},"resumable_on":{"elastic":true}}'
)
PROCESS = b'{"pid":5,"start":7,"cgroup":"/x"}'
STOP = b'{"reason":"x","term_at_ms":1,"kill_at_ms":2}'
LEASE = f"{BOOT}\n{5:020d} {6:020d}\n{5:020d} {6:020d}\n".encode()
BODY = msgspec.json.encode(body(read_contract(GOOD)[0])) if read_contract(GOOD)[0] else b""  # type: ignore[arg-type]  # it is one

READERS: dict[str, Reader] = {
    "a contract in YAML": Reader(contract_file, either(YAML, CONTRACT), (DocumentError,)),
    "a contract on the wire": Reader(sent, either(CONTRACT)),
    "strict JSON": Reader(strict_json, either(CONTRACT, BODY), (ValueError, RecursionError)),
    "a place for checkpoints": Reader(
        as_text(lambda text: read_contract({**GOOD, "spec": {**GOOD["spec"], "checkpoint": {"uri": text}}})),
        either(*(made(entry) for entry in entries("checkpoint_uris.jsonl"))),
    ),
    **{
        f"a {verb}": Reader(message(verb), either(SUBMISSION) if verb == "submit-job" else written(kind))
        for verb, kind in commands.VERBS.items()
    },
    **{f"a {kind}": Reader(message(kind, is_report=True), written(body)) for kind, body in reports.KINDS.items()},
    **{
        f"a question about {name}": Reader(question(name), either(b"{}", b'{"limit":5}', b'{"job":"x","at":3}'))
        for name in ("queue", "rank", "job", "why", "shares", "hosts", "policy")
    },
    "a question about a plan": Reader(question("plan"), written(AskPlan)),
    "an order": Reader(order, written(orders.HostOrder)),
    "a record of the log": Reader(codec.read_record, either(example.example_record()), (codec.Unreadable,)),
    "a contract's body": Reader(contract_body, either(BODY), (contracts.ContractRefused,)),
    "a renewal": Reader(lambda data: leases._lease_of(base64.b64encode(data).decode()), either(b'{"lease_ms":60000}')),
    "a renewal in base64": Reader(as_text(leases._lease_of), either(base64.b64encode(b'{"lease_ms":60000}'))),
    "a snapshot": Reader(
        in_file("00000000000000000005.fold", lambda: SnapshotStore(Path(), "v").load()),
        st.deferred(lambda: either(snapshot_sample())),
    ),
    "a lease": Reader(in_file("lease", lambda: layout.read_lease("lease", BOOT)), either(LEASE)),
    "an order to stop": Reader(in_file(layout.STOP, layout.read_stop), either(STOP)),
    "a manifest": Reader(in_file(resume.MANIFEST, lambda: resume._read(Path(resume.MANIFEST))), either(MANIFEST)),
    "a bundle": Reader(unpacked, either(a_tar()), (BundleRefused,)),
    "long names of a bundle": Reader(tarball._records, either(b"9 path=a\n15 linkpath=b/c\n"), (tarball.TarWrong,)),
    "a bundle's manifest": Reader(bundle_manifest, written(BundleManifest), (BundleRefused,)),
    "a question to attach": Reader(asked_to_attach, written(AttachQuestion)),
    "typed keys": Reader(typed, written(Typed)),
    **{
        f"what a terminal's client hears: {kind.__name__}": Reader(
            lambda data, kind=kind: codec.understood(data, kind),  # type: ignore[misc]  # mypy knows no default of a lambda
            written(kind),
            (codec.Unreadable,),
        )
        for kind in (AttachAnswer, Shown, Taken)
    },
    "evidence on a host": Reader(
        in_file(layout.EVIDENCE, lambda: failure._kept(Path(layout.EVIDENCE))), written(FailureEvidence)
    ),
    "evidence as it is shown": Reader(evidence_shown, written(FailureEvidence)),
    "the users file": Reader(
        in_file("users", lambda: identity._parsed(Path("users"))),
        either(b"# who\nann ann\n* nobody # all\n"),
        (ConfigWrong,),
    ),
    "a run's facts": Reader(in_file(layout.RUN, lambda: RunDirectory(Path()).facts()), either(b"{}"), (ValueError,)),
    "a run's end": Reader(in_file(layout.GONE, lambda: RunDirectory(Path()).gone()), either(b'{"end":"failed"}')),
    "a keeper's claim": Reader(in_file(layout.CLAIM, lambda: RunDirectory(Path()).claim()), either(PROCESS)),
    "a job's first process": Reader(
        in_file(layout.LEADER, lambda: (RunDirectory(Path()).leader(), RunDirectory(Path()).group())), either(PROCESS)
    ),
    "how a process ended": Reader(
        in_file(layout.EXIT, lambda: RunDirectory(Path()).exit()), either(b'{"exit_code":1,"stop_reason":"x"}')
    ),
    "a question about a log": Reader(
        lambda data: questions.answer(NOBODY, data), either(b'{"attempt":"a","offset":0,"limit":5}')
    ),
    "a question about progress": Reader(lambda data: questions.progress(NOBODY, data), either(b'{"attempt":"a"}')),
    "an address of the bus": Reader(
        in_file("bus.json", lambda: url_in(Path())), either(b'{"url":"x"}'), (ConfigWrong,)
    ),
    "what up remembers": Reader(
        in_file(backup.CELL_FILE, lambda: up.remembered(Path())), either(b'{"simulate":"2x8"}'), (CommandError,)
    ),
    "a backup": Reader(backup_read, st.deferred(lambda: either(backup_sample())), (BadBackup,)),
    "a backup as it unpacks": Reader(
        lambda data: backup_read(gzip.compress(data, 1)),
        st.deferred(lambda: either(gzip.decompress(backup_sample()))),
        (BadBackup,),
    ),
    "labels": Reader(as_text(labels_in), either(b"a=b,c=d"), (ConfigWrong,)),
    "what may be a secret": Reader(
        as_text(kind_of), either(b"ghp_" + b"a1" * 18, b"https://u:p@h/x", b"AKIA" + b"A" * 16)
    ),
    "a length of time": Reader(as_text(parse_length_ms), either(b"1h30m", b"7d"), (ValueError,)),
    "an amount of memory": Reader(as_text(parse_memory_mib), either(b"64Gi"), (ValueError,)),
    **{
        f"the argument {read.__name__}": Reader(as_text(read), either(sample), (argparse.ArgumentTypeError,))
        for read, sample in (
            (parser.whole, b"12"),
            (parser.positive, b"12"),
            (parser.ratio, b"0.5"),
            (parser.length, b"1h"),
            (parser.length_ms, b"1h"),
            (parser.grid, b"4x8"),
            (parser.simulated, b"4x8"),
            (parser.name, b"team-a"),
            (parser.job, b"job-" + b"a" * 20),
            (parser.pair, b"A=b"),
            (parser.label, b"a=b"),
            (parser.block, b"row-a/rack-7"),
            (parser.memory, b"64Gi"),
            (parser.array, b"5%2"),
            (parser.after, b"job-" + b"a" * 20 + b":ok"),
            (parser.account, b"ann"),
            (parser.check, b"dcgm=1:two GPUs"),
            (parser.instant, b"2026-11-30T12:00"),
            (parser.price, b"h100=2.50"),
            (parser.address, b"10.0.0.1"),
        )
    },
}


@at_length
@pytest.mark.parametrize("name", READERS)
def test_a_reader_gives_an_answer_or_its_own_no(
    name: str, examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Recorder
) -> None:
    monkeypatch.chdir(tmp_path)
    fed = Fed(READERS[name])
    examine(fed.answers, bent(READERS[name].samples), examples)
    record_property(FUZZED, fed.told(name))


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_a_reader_withstands_very_many_inputs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Recorder
) -> None:
    """Samples are drawn once and bent by plain chance, again and again: twenty times as many in the same time."""
    monkeypatch.chdir(tmp_path)
    samples: list[bytes] = []

    def keep(data: bytes) -> None:
        samples.append(data)

    examine(keep, bent(READERS[name].samples), POOL)
    fed, chance = Fed(READERS[name]), random.Random(SEED)
    for number in range(INPUTS):
        data = bent_by(chance, samples)
        try:
            fed.answers(data)
        except BaseException as error:
            error.add_note(f"input {number} of FAIRLEASE_SEED={SEED} FAIRLEASE_FUZZ_INPUTS={INPUTS}: {data!r}")
            raise
    record_property(FUZZED, fed.told(name))


@at_length
@pytest.mark.parametrize(
    "kind", [*commands.VERBS.values(), *reports.KINDS.values(), Submitted], ids=lambda kind: kind.__name__
)
def test_a_decision_takes_any_message_of_its_type(kind: type, examples: int) -> None:
    """Also what no edge would let through: a log of another version may hold it."""
    if kind is commands.SubmitJob:
        kind = Submitted
    owner = "admission" if kind is Submitted else OWNERS[kind.__struct_config__.tag]  # type: ignore[attr-defined]  # all are structs

    def is_decided(said: Any) -> None:  # noqa: ANN401 - of the kind that is tested
        for who in ("ann", "lead", "host-001"):
            decided(owner, Answer(stream="FL_LAB_X", seq=9, time_ms=WORLD.log_time_ms + 1, who=who, said=said))

    examine(is_decided, anything(kind), examples)
