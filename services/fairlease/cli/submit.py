"""`submit`: hand in a contract, and if asked wait for the job's end and leave with its code.

The job's id is computed before anything is sent, so that an interrupted or unanswered submission can
always be named. Standard output carries the id (or the job's own log with `--follow`) and nothing else;
all that happens on the way is told on standard error.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlease.cli.ending import ended
from fairlease.cli.exits import (
    INTERRUPTED,
    LATER,
    OK,
    REFUSED,
    USAGE,
    CommandError,
)
from fairlease.cli.output import Output, output_of, print_data, print_text, say, say_advice, tell
from fairlease.cli.parser import account_of
from fairlease.cli.submission import Submission, advice_on, read_submission, written_out
from fairlease.cli.table import printable
from fairlease_schemas.explain import CommandAnswer, JobView
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import ADMISSION

if TYPE_CHECKING:
    from fairlease.cli.failure import Kept
    from fairlease.cli.packing import Packed

_LATER: Final = "submit the same again later; `fairlease doctor` says what must be mended"
_DRAIN_S: Final = 3.0
"""How long the rest of a log is waited for once the job is over."""


class _Passage:
    """How far the submission has come, for the words of an interruption."""

    def __init__(self, job: str, jobs: list[str], request_id: str) -> None:
        self.job = job
        self.jobs = jobs
        self.request_id = request_id
        self.is_sent = False

    def interrupted(self) -> CommandError:
        if not self.is_sent:
            return CommandError(INTERRUPTED, "interrupted: nothing was submitted")
        return CommandError(
            INTERRUPTED,
            f"interrupted: {self.job} goes on without this command",
            way_out=f"see `fairlease job show {self.job}`, or end it with `fairlease job cancel {self.job}`",
            facts=self.facts(),
        )

    def facts(self) -> dict[str, str]:
        return {"job": self.job, "request_id": self.request_id}


def run(args: argparse.Namespace) -> int:
    """Submit, print, wait where asked; the exit code of exits.py, or CommandError."""
    _check(args)
    submission = read_submission(args)
    output = output_of(args)
    account, budget = account_of(args), submission.contract.spec.budget
    job = job_id(account, budget, submission.request_id)
    say_advice(output, advice_on(submission.contract))
    if args.dry_run:
        return _shown(submission, job, output)
    jobs, array = [job], submission.contract.spec.array
    if array is not None:
        jobs = [job_id(account, budget, f"{submission.request_id}/{index}") for index in range(array.count)]
        if args.follow:
            raise CommandError(USAGE, "--follow prints the log of one job", way_out="use --wait for an array")
    passage = _Passage(job, jobs, submission.request_id)
    try:
        return asyncio.run(_submitted(args, submission, output, passage))
    except (KeyboardInterrupt, asyncio.CancelledError):  # the latter by a signal, at a terminal of the job
        raise passage.interrupted() from None


def _check(args: argparse.Namespace) -> None:
    """Combinations of options that mean nothing; CommandError 64."""
    if args.follow and args.output not in ("table", "wide"):
        raise CommandError(
            USAGE,
            "--follow prints the job's log on standard output, where -o prints data",
            way_out="use --wait with -o, and `fairlease job logs` for the log",
        )
    if args.interactive and not args.dry_run:
        from fairlease.cli.attach import check

        check(args.output)
    if args.interactive and (args.wait or args.follow):
        raise CommandError(USAGE, "--interactive waits by itself, and shows what the job prints")
    if args.start_timeout_ms is not None and not (args.wait or args.follow or args.interactive):
        raise CommandError(USAGE, "--start-timeout needs --wait, --follow or --interactive")


def _shown(submission: Submission, job: str, output: Output) -> int:
    """What would be submitted: the contract written out, and the id it would have."""
    from fairlease_schemas.codec import digest
    from fairlease_schemas.contract import body

    contract = written_out(submission.contract)
    if output.form in ("table", "wide"):
        print_data("yaml", msgspec.json.encode(contract), ())
        tell(output, f"this would be {job}; nothing was submitted", {})
        return OK
    view = {
        "apiVersion": "fairlease/v1",
        "kind": "DryRun",
        "job": job,
        "request_id": submission.request_id,
        "digest": digest(body(submission.contract)),
        "contract": contract,
    }
    print_data(output.form, msgspec.json.encode(view), (job,))
    return OK


async def _submitted(args: argparse.Namespace, submission: Submission, output: Output, passage: _Passage) -> int:
    from fairlease.cli.failure import evidence
    from fairlease.cli.link import linked
    from fairlease.cli.watch import Step, Watch

    body = msgspec.json.encode({"request_id": submission.request_id, "contract": submission.data})
    is_waiting = args.wait or args.follow or args.interactive
    async with linked(args) as link:
        budget = submission.contract.spec.budget
        names = passage.jobs if is_waiting else []
        feeds = [await link.subscribe(link.subjects.feed(budget, name, ">")) for name in names]
        await _check_open(link)
        if submission.packed is not None:
            await _uploaded(link, submission.packed, output)
        passage.is_sent = True
        try:
            receipt = await link.send("submit-job", body, args.answer_timeout_ms)
        except CommandError as error:
            raise _again(error, passage) from error
        _say_answer(receipt.answer, output, passage)
        if receipt.answer.outcome == "refused":
            raise _refused(receipt.raw, receipt.answer, output)
        if not is_waiting:
            return _print_ids(receipt.raw, output, passage.jobs)
        if args.interactive:
            return await _attended(link, passage.job, feeds[0], output, args.start_timeout_ms)
        if output.form in ("table", "wide") and not args.follow:
            print_text("".join(f"{name}\n" for name in passage.jobs))

        def on_step(step: Step) -> None:
            say(output, step.sentence(), step.facts())

        reader = asyncio.create_task(_followed(link, passage.job, output)) if args.follow else None
        try:
            watches = [Watch(link, name, feed, on_step) for name, feed in zip(names, feeds, strict=True)]
            answers = await asyncio.gather(*(watch.end(args.start_timeout_ms) for watch in watches))
            if reader is not None:
                await asyncio.wait((reader,), timeout=_DRAIN_S)
        finally:
            if reader is not None:
                reader.cancel()
        over = [(one.raw, one.view) for one in answers if isinstance(one.view, JobView)]
        kept = [await evidence(link, view) if view.state == "failed" else [] for _, view in over]
    codes = [ended(raw, view, output) for raw, view in over]
    if not args.follow:  # who followed has read them
        _tell_last_lines(kept, output)
    return next((code for code in codes if code != OK), OK)


async def _check_open(link: Any) -> None:  # noqa: ANN401 - a Link, whose import is late
    """CommandError 75 when admission says that it takes no new work; nothing was sent then.

    Where it says nothing the command is sent all the same: it is answered when admission is there.
    """
    if closed := await link.closed():
        raise CommandError(LATER, f"admission takes no new work now: {printable(closed)}", way_out=_LATER)


async def _uploaded(link: Any, packed: "Packed", output: Output) -> None:  # noqa: ANN401 - a Link, whose import is late
    """The code on the bus before the contract that names it."""
    from fairlease.cli.upload import upload

    size = len(packed.data)
    if await upload(link, packed):
        facts = {"kind": "Uploaded", "bundle": packed.bundle, "bytes": size, "files": packed.entries}
        say(output, f"uploaded {packed.bundle}: {size} bytes, {packed.entries} files", facts)


async def _attended(link: Any, job: str, feed: Any, output: Output, start_timeout_ms: int | None) -> int:  # noqa: ANN401 - as above, and its subscription
    """A person at the job's terminal, from its start to its end."""
    from fairlease.cli.attach import attended

    say(output, job, {})
    return await attended(link, job, feed, output, start_timeout_ms=start_timeout_ms)


async def _followed(link: Any, job: str, output: Output) -> None:  # noqa: ANN401 - a Link, whose import is late
    from fairlease.cli.logs import Follower

    await Follower(link, job, output).follow()


def _again(error: CommandError, passage: _Passage) -> CommandError:
    """An unanswered submission, with the id that makes asking again safe."""
    if error.code != LATER:
        return error
    return CommandError(
        LATER,
        error.text,
        way_out=(
            f"ask again with --request-id {passage.request_id}: the same id and contract is the same job, {passage.job}"
        ),
        facts=passage.facts(),
    )


def _say_answer(answer: CommandAnswer, output: Output, passage: _Passage) -> None:
    for advice in answer.advice:
        say_advice(output, advice)
    if answer.outcome == "repeated":
        text = f"{passage.job} was submitted before with this request id; it is {answer.state}"
        say(output, text, {"kind": "Repeated", **passage.facts(), "state": answer.state})


def _refused(raw: bytes, answer: CommandAnswer, output: Output) -> CommandError:
    from fairlease.cli.wishes import refusal

    if output.is_data:
        print_data(output.form, raw, ())
    is_closed = any(problem.field == ADMISSION for problem in answer.problems)
    return refusal(answer, LATER if is_closed else REFUSED, f"{answer.job or 'the job'} was refused")


def _print_ids(raw: bytes, output: Output, jobs: list[str]) -> int:
    if output.is_data:
        print_data(output.form, raw, tuple(jobs))
    else:
        print_text("".join(f"{job}\n" for job in jobs))
    return OK


def _tell_last_lines(kept: "list[list[Kept]]", output: Output) -> None:
    """What the jobs that failed printed last, on standard error; of an array those of the first."""
    from fairlease.cli.failure import last_lines

    found = next((one for one in kept if last_lines(one)), [])
    lines = last_lines(found)
    if output.is_data and lines:
        say(output, "", {"kind": "LastLines", "attempt": found[0].attempt, "lines": lines})
    elif lines:
        say(output, "\n".join(("it printed last:", *(f"  | {line}" for line in lines))), {})
