"""The file that an exploration keeps: a line for each run that came to its end, on disk before the next is waited for.

Whoever is killed, at whatever instant, leaves whole lines and at most one that is torn at the end; that one is cut off
when the file is taken up again. A line says all that its figures depend on, so that runs of another workload, length,
size or code are refused and never mixed in. The file is locked for as long as it is open: two that write at once would
play the same runs twice.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from fairlease.core.policy_rules import policy_problems
from fairlease.runtime.whole_file import sync_names
from fairlease.simulator.exploration import Run, digest_of_policy, run_of
from fairlease_schemas.comparison import ExploredRun
from fairlease_schemas.policy import Policy

MAX_BYTES: Final = 1 << 30
MAX_LINE: Final = 16 << 20
"""A figure for each budget of a workload that fills its own file."""
_HEAD: Final = b'{"kind":"ExploredRun",'
_DECODER: Final = msgspec.json.Decoder(ExploredRun)
_OTHER: Final = "name a file that does not exist yet"


class KeptWrong(Exception):
    """The file cannot be taken up: says why, with the line where there is one, and the way out."""

    def __init__(self, text: str, way_out: str) -> None:
        super().__init__(text)
        self.way_out = way_out


class KeptBusy(Exception):
    """Another exploration has the file."""


class Setting(NamedTuple):
    """What runs must have in common to stand in one table."""

    workload_digest: str
    hosts: int
    warm_up_ms: int
    measured_ms: int


class Kept:
    """An open file of runs. `runs` are those it held when it was opened, `points` their policies by digest."""

    def __init__(
        self,
        path: str,
        setting: Setting,
        code: str,
        wanted: Collection[str],
        *,
        is_any_code: bool = False,
        is_shown: bool = False,
    ) -> None:
        """Open or make the file. `wanted` are the figures that `runs` have.

        With `is_any_code` runs by other code are taken up where there is none by this; with `is_shown` the file is only
        read, whoever writes it. KeptWrong, KeptBusy, or OSError; none of them leaves the file another one.
        """
        self._setting, self._code, self._wanted = setting, code, wanted
        self._is_any_code = is_any_code
        self.runs: dict[tuple[str, int], Run] = {}
        self.points: dict[str, Policy] = {}
        self._file = _opened(path, os.O_RDONLY if is_shown else os.O_RDWR | os.O_CREAT)
        try:
            if not is_shown:
                _lock(self._file)
            self._at = self._take_all()
            if not is_shown:
                os.ftruncate(self._file.fileno(), self._at)
                with contextlib.suppress(OSError):  # some file systems keep no names to be sure of
                    sync_names(Path(path).resolve().parent)
        except BaseException:
            self._file.close()
            raise

    def _take_all(self) -> int:
        """Take every line; how many bytes are whole."""
        whole = 0
        for number, line in enumerate(self._lines(), start=1):
            if not line.endswith(b"\n"):
                if not _is_torn(line):
                    raise KeptWrong(f"line {number} is no run", _OTHER)
                break
            self._take(line, number)
            whole += len(line)
        return whole

    def _lines(self) -> Iterator[bytes]:
        while line := self._file.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                raise KeptWrong(f"a line is longer than {MAX_LINE} bytes, so it is no run", _OTHER)
            yield line

    def _take(self, line: bytes, number: int) -> None:
        try:
            told = _DECODER.decode(line)
            policy = msgspec.convert(told.numbers, Policy)
        except (msgspec.DecodeError, RecursionError) as error:
            raise KeptWrong(f"line {number} is no run: {error}", _OTHER) from error
        if told.code != self._code and self._is_any_code:
            # Other code may have had other defaults, so what is known by them has another name here.
            told = msgspec.structs.replace(told, policy_digest=digest_of_policy(policy))
        if problem := self._problem(told, policy):
            raise KeptWrong(f"line {number}: {problem[0]}", problem[1])
        run = run_of(told, self._wanted)
        before = self.runs.get((run.policy_digest, run.seed))
        if before is not None and before.code == run.code and before != run:
            text = f"line {number} has other figures of seed {run.seed} than a line before it, by the same code"
            raise KeptWrong(text, "one of them was changed: remove the wrong line, or " + _OTHER)
        if before is None or before.code != self._code:
            self.runs[run.policy_digest, run.seed] = run
        self.points[run.policy_digest] = policy

    def _problem(self, told: ExploredRun, policy: Policy) -> tuple[str, str] | None:
        """Why this line does not belong to the exploration, and the way out; None when it does."""
        for field in Setting._fields:
            value, wanted = getattr(told, field), getattr(self._setting, field)
            if value != wanted:
                text = f"{field} is {str(value)[:70]}, and that of this exploration {wanted}"
                return text, f"ask for the same workload, --hosts, --days and --warm-up, or {_OTHER}"
        if told.code != self._code and not self._is_any_code:
            text = f"code is {told.code[:70]}, and the rules here are {self._code}: they may decide otherwise"
            return text, f"{_OTHER}, or take up runs of other code with --any-code"
        unknown = [name for name in told.numbers if name not in Policy.__struct_fields__]
        if unknown:
            return f"numbers has {unknown[0][:80]}, which no policy here has", _OTHER
        if told.policy_digest != digest_of_policy(policy):
            return "policy_digest is not that of its numbers", f"the line was changed: remove it, or {_OTHER}"
        if problems := policy_problems(policy):
            first = problems[0]
            return f"{first.field} {first.value} is not within {first.limit}", f"remove the line, or {_OTHER}"
        return None

    def keep(self, run: ExploredRun) -> None:
        """The run is on disk, or OSError and the file as it was before."""
        file, left, at = self._file.fileno(), msgspec.json.encode(run) + b"\n", self._at
        if len(left) > MAX_LINE or at + len(left) > MAX_BYTES:
            # What could not be taken up again is not written.
            raise OSError(errno.EFBIG, f"is full: {MAX_BYTES >> 20} MiB, and {MAX_LINE >> 20} MiB a line")
        try:
            while left:
                written = os.pwrite(file, left, at)
                left, at = left[written:], at + written
            os.fsync(file)
        except OSError:
            os.ftruncate(file, self._at)
            raise
        self._at = at

    def close(self) -> None:
        """Let the file and its lock go."""
        self._file.close()


def _opened(path: str, how: int) -> BinaryIO:
    """The file; a device or a pipe is refused, and never waited for."""
    file = os.open(path, how | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        _check(os.fstat(file))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeptWrong("is no file", _OTHER)
    if found.st_size > MAX_BYTES:
        raise KeptWrong(f"is larger than {MAX_BYTES >> 20} MiB", _OTHER)


def _lock(file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise KeptBusy from None


def _is_torn(line: bytes) -> bool:
    """Whether this is the beginning of a run: after a power cut, nothing or zeros may stand where the rest should."""
    known = line.rstrip(b"\0")
    return known[: len(_HEAD)] == _HEAD[: len(known)]
