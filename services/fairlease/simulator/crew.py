"""The crew: many runs in a process each, as many at a time as there are cores.

Runs share nothing, so one that crashes or is killed is a run without figures and takes no other with it. A process
writes its report, and now and then how far it is, to a pipe of its own; it stops when nobody reads the pipe any more.
An interruption from the keyboard is the parent's alone: it ends the crew and keeps what is known.
"""

import contextlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, NamedTuple

Data = dict[str, Any]
Tell = Callable[[int], None]
"""Called by a run with how much of it is done, in permille."""
Play = Callable[[Tell], Data]
"""A run, which a process of its own can carry out: it can be pickled, and needs nothing of this process."""

_TELL_S: Final = 0.25
_LOOK_S: Final = 0.5
_ENDS_S: Final = 5.0


class Wrong(Exception):
    """A run says by this that its input is wrong: its text is told to people as it stands."""


class Result(NamedTuple):
    """What became of the run with this number: its report, or why there is none."""

    number: int
    report: Data | None
    why: str


class _Hand(NamedTuple):
    """A run under way."""

    number: int
    process: BaseProcess
    pipe: Connection


def played(plays: Iterable[Play], workers: int, on_progress: Callable[[int], None]) -> Generator[Result]:
    """The results as they come. `on_progress` is told how much is done, in permille of a run, over all of them.

    Whoever stops reading, or is interrupted, ends the processes that are left.
    """
    context = multiprocessing.get_context("spawn")
    left = list(enumerate(plays))[::-1]
    hands: list[_Hand] = []
    done: dict[int, int] = {}
    try:
        while left or hands:
            while left and len(hands) < workers:
                hands.append(_begun(context, *left.pop()))
            wait([hand.pipe for hand in hands], timeout=_LOOK_S)
            for hand in list(hands):
                result = _heard(hand, done)
                if result is not None:
                    hands.remove(hand)
                    _ended(hand)
                    done[hand.number] = 1000
                    yield result
            on_progress(sum(done.values()))
    finally:
        for hand in hands:
            hand.process.terminate()
        for hand in hands:
            _ended(hand)


def _begun(context: multiprocessing.context.SpawnContext, number: int, play: Play) -> _Hand:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(play, theirs), daemon=True)
    # Held back while it starts, so that no interruption finds the new process before it can look away.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return _Hand(number, process, ours)


def _heard(hand: _Hand, done: dict[int, int]) -> Result | None:
    """Everything the run has said; its result once there is one, also when it ended without."""
    try:
        while hand.pipe.poll():
            kind, said = hand.pipe.recv()
            if kind == "done":
                return Result(hand.number, said, "")
            if kind == "wrong":
                return Result(hand.number, None, said)
            done[hand.number] = said
    except (EOFError, OSError):
        hand.process.join(_ENDS_S)
        return Result(hand.number, None, f"its process ended with {hand.process.exitcode} and no report")
    return None


def _ended(hand: _Hand) -> None:
    """The process is over, by force where it does not end by itself."""
    hand.process.join(_ENDS_S)
    if hand.process.exitcode is None:
        hand.process.kill()
        hand.process.join()
    hand.pipe.close()


def work(play: Play, pipe: Connection) -> None:
    """What a process of the crew does: play, and say what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told_s = time.monotonic()

    def tell(permille: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _TELL_S:
            told_s = time.monotonic()
            pipe.send(("at", permille))

    with contextlib.suppress(BrokenPipeError):
        try:
            pipe.send(("done", play(tell)))
        except BrokenPipeError:
            raise
        except Wrong as error:
            pipe.send(("wrong", str(error)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told as this run's end and hides nothing
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
            pipe.send(("wrong", f"{type(error).__name__}: {error} (in {where})"))
