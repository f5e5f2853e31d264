"""Reading the command line: the parser's manners, shared options, and what a value may look like.

argparse from the standard library, because it starts in 10 ms where the pleasant ones need 100. Two
manners differ from its own: a mistake ends in 64 as `sysexits.h` has it (2 is a code jobs use), and
options are never guessed from their first letters, so that a script keeps its meaning when we add one.
What follows the first `--` is the job's command and is not looked at.
"""

import argparse
import os
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from fairlease.cli.exits import USAGE, CommandError
from fairlease_schemas.ids import ROOT, is_name, job_of
from fairlease_schemas.units import parse_length_ms, parse_memory_mib

if TYPE_CHECKING:
    from fractions import Fraction

FORMATS: Final = ("table", "wide", "json", "jsonl", "yaml", "name")
_MAX_SEEDS: Final = 1_000
_MAX_COUNT: Final = 10**9
_ATTEMPT: Final = re.compile(r"job-[a-z0-9]+-a[0-9]+")
_MONEY: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?")
_SCORE: Final = re.compile(r"(-?)([0-9]{1,9})(?:\.([0-9]{1,3}))?")
_FACTOR: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,6})?")
_BLOCK: Final = re.compile(r"(?=.{1,128}$)[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of leaving the process."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)  # type: ignore[arg-type]  # argparse itself hands subparsers any keyword

    def error(self, message: str) -> NoReturn:
        raise CommandError(USAGE, message, way_out=f"see: {self.prog} --help")

    def nearest(self, words: Sequence[str]) -> str:
        """The option that was meant by the first of these words that is near one, as a question; else empty."""
        options = [option for action in self._actions for option in action.option_strings]
        for word in words:
            near = get_close_matches(word.partition("=")[0], options, n=1, cutoff=0.75)
            if word.startswith("--") and near:
                return f"; did you mean {near[0]}?"
        return ""


def whole(text: str) -> int:
    """A whole number from 0 to a thousand million, in plain digits."""
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > _MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {_MAX_COUNT}")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = whole(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 is too small: write a whole number from 1 on")
    return number


def ratio(text: str) -> float:
    """A number above 0 and at most a million, such as a speed or the part of a trace to keep."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number above 0 and up to 1000000")
    return number


def factor(text: str) -> "Fraction":
    """A number from 0.001 to 1000, exactly as it was written, such as 1.015."""
    from fractions import Fraction

    if _FACTOR.fullmatch(text) and 0.001 <= float(text) <= 1_000:
        return Fraction(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 0.001 to 1000: write for example 1.015")


def length(text: str) -> str:
    """A length of time with its unit, kept as it was written."""
    length_ms(text)
    return text


def length_ms(text: str) -> int:
    """Milliseconds of a length of time with its unit."""
    try:
        return parse_length_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def grid(text: str) -> tuple[int, int]:
    """Hosts and GPUs per host, written `4x8`."""
    hosts, times, gpus = text.partition("x")
    if not times:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not hosts x GPUs: write for example 4x8")
    return positive(hosts), positive(gpus)


def simulated(text: str) -> tuple[int, int]:
    """Hosts to simulate, written `4x8`, within what an agent simulates."""
    from fairlease.agent.devices import MAX_SIMULATED_GPUS, MAX_SIMULATED_HOSTS

    hosts, gpus = grid(text)
    if hosts > MAX_SIMULATED_HOSTS or gpus > MAX_SIMULATED_GPUS:
        raise argparse.ArgumentTypeError(
            f"{hosts}x{gpus} is too large: at most {MAX_SIMULATED_HOSTS} hosts of {MAX_SIMULATED_GPUS} GPUs are "
            f"simulated; take more hosts of fewer GPUs, for example {min(2 * hosts, MAX_SIMULATED_HOSTS)}x8"
        )
    return hosts, gpus


def seeds(text: str) -> tuple[int, ...]:
    """Seeds, written `1-3` or `1,4,7-9`: each once, in ascending order."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = whole(first)
        high = whole(last) if dash else low
        if high < low or high - low >= _MAX_SEEDS:
            raise argparse.ArgumentTypeError(f"{part[:40]!r} is no range of at most {_MAX_SEEDS} seeds: write 1-3")
        found.update(range(low, high + 1))
    if len(found) > _MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"{len(found)} seeds are too many: write at most {_MAX_SEEDS}")
    return tuple(sorted(found))


def names(text: str) -> tuple[str, ...]:
    """Names with commas between, each once, in the order in which they are written."""
    return tuple(dict.fromkeys(name(part) for part in text.split(",")))


def case_names(text: str) -> tuple[str, ...]:
    """Names of cases, which may hold points, with commas between; which there are, the suite says."""
    return tuple(dict.fromkeys(text.split(",")))


def name(text: str) -> str:
    """The name of a budget, host, pool or account."""
    if not is_name(text):
        raise argparse.ArgumentTypeError(
            f"{text[:70]!r} is not a name: write 1 to 63 of a-z, 0-9 and -, with no - at the ends"
        )
    return text


def job(text: str) -> str:
    """A job id; the id of one of its attempts stands for the job."""
    return job_of(text) if _ATTEMPT.fullmatch(text) else text


def pair(text: str) -> tuple[str, str]:
    """An environment variable for the job, written `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not KEY=VALUE")
    return key, value


def agent(text: str) -> tuple[str, tuple[str, ...]]:
    """An agent and the hosts it serves, written `NAME=HOST,HOST`."""
    who, equals, hosts = text.partition("=")
    if not equals or who == "agent":
        raise argparse.ArgumentTypeError(
            f"{text[:70]!r} is not NAME=HOST,HOST with a name other than 'agent', which is the one of `up` itself"
        )
    return name(who), tuple(dict.fromkeys(name(host) for host in hosts.split(",")))


def bot(text: str) -> tuple[str, tuple[str, ...]]:
    """A bot and the hosts it looks after, written `NAME` for all of them or `NAME=HOST,HOST`."""
    who, equals, hosts = text.partition("=")
    return name(who), tuple(dict.fromkeys(name(host) for host in hosts.split(","))) if equals else ()


def label(text: str) -> tuple[str, str]:
    """A label of a host, written `KEY=VALUE`, as contracts can ask for it."""
    from fairlease.runtime.settings import LABEL_LIMIT, is_label

    key, value = pair(text)
    if not is_label(key, value):
        raise argparse.ArgumentTypeError(f"{text[:70]!r} is not a label: {LABEL_LIMIT}")
    return key, value


def block(text: str) -> str:
    """Where a host stands, outermost first, parts joined by `/`."""
    if _BLOCK.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text[:70]!r} is no topology block: write parts of a-z A-Z 0-9 . _ - joined by /, as in row-a/rack-7"
        )
    return text


def path(text: str) -> str:
    """A file by its whole path: whoever is told may work in another directory."""
    return str(Path(text).absolute())


def address(text: str) -> str:
    """Where other hosts reach this one."""
    from fairlease_schemas.address import is_address

    if not is_address(text):
        raise argparse.ArgumentTypeError(
            f"{text[:70]!r} is not an address: write an IP address or a host name, without a port"
        )
    return text


def memory(text: str) -> str:
    """An amount of memory with its unit, kept as it was written."""
    try:
        parse_memory_mib(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def array(text: str) -> dict[str, int]:
    """An array written `100`, or `100%8` with at most eight at a time."""
    count, percent, parallel = text.partition("%")
    if percent:
        return {"count": positive(count), "parallel": positive(parallel)}
    return {"count": positive(count)}


def after(text: str) -> dict[str, str]:
    """A job to wait for, written `JOB`, or `JOB:any` where its end does not matter."""
    name, colon, when = text.partition(":")
    if colon and when not in ("ok", "any"):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not JOB, JOB:ok or JOB:any")
    return {"job": job(name), "when": when or "ok"}


def check(text: str) -> tuple[str, int, str]:
    """A check of a host, written `NAME=CODE` or `NAME=CODE:TEXT`; of a long text the end.

    The whole text is looked at for a secret here, which the end alone would not show any more.
    """
    from fairlease_schemas.credential import kind_of
    from fairlease_schemas.host import CODES, MAX_OUTPUT

    key, _, rest = text.partition("=")
    code, _, output = rest.partition(":")
    if code not in map(str, CODES):
        codes = f"{min(CODES)} to {max(CODES)}"
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not NAME=CODE[:TEXT] with a code from {codes}")
    secret = kind_of(output)
    if secret:
        raise argparse.ArgumentTypeError(f"the text of check {key[:40]} looks like {secret}: the log would keep it")
    return name(key), int(code), output[-MAX_OUTPUT:]


def budget_or_root(text: str) -> str:
    """The name of a budget, or `/` for the root: the whole cell."""
    return text if text == ROOT else name(text)


def number(text: str) -> tuple[str, str]:
    """A number of a policy, written `NAME=VALUE`."""
    key, value = pair(text)
    return key.replace("-", "_"), value


def choices(text: str) -> tuple[str, tuple[str, ...]]:
    """Values of one number of a policy, written `NAME=A,B`, each once and in that order."""
    key, values = number(text)
    return key, tuple(dict.fromkeys(values.split(",")))


def aim(text: str) -> tuple[str, str, float]:
    """A figure, which end of it is best, and the step that counts, 0 for any: `FIGURE:least`, `FIGURE:most:0.01`."""
    figure, _, rest = text.partition(":")
    best, colon, step = rest.partition(":")
    if not figure or best not in ("least", "most"):
        raise argparse.ArgumentTypeError(f"{text[:70]!r} is no aim: write for example occupancy:most")
    return figure, best, ratio(step) if colon else 0


def account(text: str) -> str:
    """The name of an account, or `*` for everybody."""
    return text if text == "*" else name(text)


def instant(text: str) -> str:
    """A length before the end of the log, or a date with or without a time; kept as it was written."""
    return _instant(text, "before the end of the log", "of UTC, such as 2026-11-30 or 2026-11-30T12:00")


def begin(text: str) -> str:
    """A length after the first arrival of a trace, or a date with or without a time; kept as it was written."""
    return _instant(text, "after the first arrival", "as the trace has it, such as 2017-10-01 or 2017-10-01T12:00")


def _instant(text: str, side: str, example: str) -> str:
    from datetime import datetime

    try:
        parse_length_ms(text)
    except ValueError:
        try:
            datetime.fromisoformat(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} is no instant: write how long {side}, such as 7d, or a date and time {example}"
            ) from error
    return text


def price(text: str) -> tuple[str, int]:
    """A pool with its price of a GPU-hour, written `POOL=2.50`; the price in millionths."""
    pool, equals, amount = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text[:70]!r} is no price of a pool: write for example h100=2.50")
    return name(pool), money(amount)


def money(text: str) -> int:
    """An amount such as `2.50`, with at most six decimals, in millionths."""
    found = _MONEY.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no price: write for example 2.50, at most six decimals")
    return int(found[1]) * 1_000_000 + int((found[2] or "").ljust(6, "0"))


def score(text: str) -> int:
    """A figure such as `0.873` or `-2`, with at most three decimals and nine digits before them, in thousandths."""
    found = _SCORE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no score: write for example 0.873, at most three decimals")
    thousandths = int(found[2]) * 1_000 + int((found[3] or "").ljust(3, "0"))
    return -thousandths if found[1] else thousandths


def output_options() -> Parser:
    """Options of every command that prints an answer."""
    parent = Parser(add_help=False)
    group = parent.add_argument_group("output")
    group.add_argument("-o", "--output", choices=FORMATS, default="table", help="form of the answer (table)")
    group.add_argument("--json", action="store_const", const="json", dest="output", help="the same as -o json")
    group.add_argument("-q", "--quiet", action="store_true", help="no headings, hints or progress")
    return parent


def identity_options() -> Parser:
    """Options of every command that speaks for an account."""
    parent = Parser(add_help=False)
    group = parent.add_argument_group("identity")
    group.add_argument("--account", type=name, metavar="NAME", help="who asks (FAIRLEASE_ACCOUNT, else local)")
    return parent


def answer_options() -> Parser:
    """Options of every command that waits for an answer from the log."""
    parent = Parser(add_help=False)
    parent.add_argument(
        "--answer-timeout",
        type=length_ms,
        default=15_000,
        dest="answer_timeout_ms",
        metavar="LENGTH",
        help="how long to wait for the answer (15s)",
    )
    return parent


def account_of(args: argparse.Namespace) -> str:
    """Who speaks: `--account`, else FAIRLEASE_ACCOUNT, else `local`; CommandError 64 for what is no name."""
    account = getattr(args, "account", None) or os.environ.get("FAIRLEASE_ACCOUNT", "") or "local"
    if not is_name(account):
        raise CommandError(
            USAGE, f"FAIRLEASE_ACCOUNT={account[:70]!r} is not a name", way_out="write 1 to 63 of a-z, 0-9 and -"
        )
    return account


def parse(argv: Sequence[str], parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments; `command` holds what follows the first `--`, or None where there is none.

    Raises CommandError with code 64, and SystemExit(0) after `--help` and `--version`.
    """
    words = list(argv)
    command = None
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    args, strange = parser.parse_known_args(words)
    leaf = args.leaf
    if strange:
        leaf.error(f"unrecognized arguments: {' '.join(strange)}{leaf.nearest(strange)}")
    if command is not None and not getattr(args, "takes_command", False):
        leaf.error("only `submit` and `plan` take a command after --")
    args.command = command
    return args
