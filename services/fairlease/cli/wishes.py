"""Commands that want something changed, of jobs, evaluations, hosts and budgets.

Each is one message to the account's inbox and one answer from the log. All of them may be sent again
without harm: what is already so is answered as such.
"""

import argparse
import asyncio
import time
import uuid

import msgspec

from fairlease.cli.exits import FAILED, OK, USAGE, CommandError, Finding
from fairlease.cli.link import Link, Receipt, linked
from fairlease.cli.output import output_of, print_data, print_text, say_advice
from fairlease.cli.screens import drain_told, names
from fairlease.cli.table import printable
from fairlease_schemas.codec import nfc
from fairlease_schemas.commands import (
    CancelJob,
    ChangeBudget,
    ChangeMember,
    CordonHost,
    HoldJob,
    ProposeChange,
    RecordEvaluation,
    ReleaseJob,
    RequestDrain,
    ReturnHost,
    UndrainHost,
)
from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.explain import CommandAnswer
from fairlease_schemas.host import Check
from fairlease_schemas.ids import ROOT
from fairlease_schemas.units import format_length


def run(args: argparse.Namespace) -> int:
    """Send `args.wish` and say what came of it: 0, or CommandError (1 when it was refused)."""
    what, then = proposed(args.propose) if getattr(args, "propose", None) else (_object(args), "")
    return tell(args, asyncio.run(_sent(args)), what, then)


def proposed(proposal: str) -> tuple[str, str]:
    """(what was sent, what is to be done next) of a proposal, which itself changes nothing."""
    return f"proposing {proposal}", f"nothing has changed yet, next: fairlease policy simulate {proposal}"


def tell(args: argparse.Namespace, receipt: Receipt, what: str, then: str = "") -> int:
    """Say what came of a command about `what`, in the form asked for, and `then` what that comes to.

    CommandError 1 when it was refused.
    """
    output = output_of(args)
    if output.form not in ("table", "wide"):
        print_data(output.form, receipt.raw, names(receipt.answer))
    elif receipt.answer.outcome != "refused" and not output.is_quiet:
        print_text(_sentence(what, receipt.answer) + (f"; {then}" if then else "") + "\n")
    if receipt.answer.outcome == "refused":
        raise refusal(receipt.answer, FAILED, f"{what}: refused")
    for advice in receipt.answer.advice:
        say_advice(output, advice)
    return OK


async def _sent(args: argparse.Namespace) -> Receipt:
    wish = wish_of(args)
    async with linked(args) as link:
        return await sent(link, wish, args.answer_timeout_ms)


async def sent(link: Link, wish: msgspec.Struct, timeout_ms: int) -> Receipt:
    """A command under the subject of its verb, and what came of it; CommandError as `Link.send` says."""
    body = msgspec.to_builtins(wish)
    del body["type"]  # the subject says it
    verb = str(wish.__struct_config__.tag)
    return await link.send(verb, msgspec.json.encode(body), timeout_ms, body.get("host", ""))


Wish = (
    CancelJob
    | HoldJob
    | ReleaseJob
    | RecordEvaluation
    | CordonHost
    | ReturnHost
    | RequestDrain
    | UndrainHost
    | ChangeBudget
    | ChangeMember
    | ProposeChange
)


def wish_of(args: argparse.Namespace) -> Wish:
    """The command these arguments describe."""
    match args.wish:
        case "cancel-job":
            return CancelJob(job=args.job)
        case "hold-job":
            return HoldJob(job=args.job, reason=args.reason)
        case "release-job":
            return ReleaseJob(job=args.job)
        case "record-evaluation":
            return RecordEvaluation(
                request_id=args.request_id or uuid.uuid4().hex,
                evaluation=args.evaluation,
                outcome=Outcome(args.outcome),
                budget=args.budget or "",
                job=args.job or "",
                score_permille=args.score,
            )
        case "change-member":
            role = "" if args.role == "none" else args.role
            return ChangeMember(budget=args.budget, account=args.member, role=role)
        case "cordon-host":
            return CordonHost(host=args.host, reason=args.reason)
        case "return-host":
            at_ms = time.time_ns() // 1_000_000
            checks = tuple(Check(name=n, code=code, at_ms=at_ms, output=nfc(text)) for n, code, text in args.check)
            return ReturnHost(host=args.host, checks=checks)
        case "request-drain":
            _check_lengths(args)
            now_ms = time.time_ns() // 1_000_000
            return RequestDrain(
                host=args.host,
                reason=args.reason,
                not_before_ms=now_ms + args.after if args.after else 0,
                deadline_ms=now_ms + args.deadline if args.deadline else 0,
                external_id=args.external_id,
            )
        case "undrain-host":
            return UndrainHost(host=args.host)
        case _:
            change = ChangeBudget(
                budget=args.budget,
                weight=args.weight,
                parent=args.parent,
                reason=args.reason,
                order=args.order,
                max_protected_permille=args.max_protected_permille,
                burst_permille=args.burst_permille,
            )
            if args.propose:
                return ProposeChange(proposal=args.propose, changes=(change,), reason=args.reason)
            return change


def _check_lengths(args: argparse.Namespace) -> None:
    """CommandError 64 for a deadline before the start, in the words it was written in."""
    if args.deadline and args.after and args.deadline < args.after:
        deadline, start = format_length(args.deadline), format_length(args.after)
        text = f"--deadline {deadline} is before --after {start}: both count from now"
        raise CommandError(USAGE, text, way_out=f"write a deadline of {start} or later, or none")


def refusal(answer: CommandAnswer, code: int, text: str) -> CommandError:
    """The problems of a refused command as the error it ends with."""
    findings = [
        Finding(printable(p.field), printable(p.rule), printable(p.value), printable(p.limit), printable(p.way_out))
        for p in answer.problems
    ]
    return CommandError(code, text, findings=findings, facts={"job": answer.job} if answer.job else {})


def _object(args: argparse.Namespace) -> str:
    match args.wish:
        case "cancel-job":
            return f"cancelling {args.job}"
        case "hold-job":
            return f"holding {args.job}"
        case "release-job":
            return f"releasing {args.job}"
        case "record-evaluation":
            return f"evaluation {args.evaluation} {args.outcome}"
        case "change-member":
            where = "the whole cell" if args.budget == ROOT else f"budget {args.budget}"
            return f"{args.member} in {where}"
        case "cordon-host":
            return f"cordoning {args.host}"
        case "return-host":
            return f"returning {args.host}"
        case "request-drain":
            return f"draining {args.host}"
        case "undrain-host":
            return f"calling off the drain of {args.host}"
        case _:
            return f"budget {args.budget}"


def _sentence(what: str, answer: CommandAnswer) -> str:
    state = f" ({answer.state})" if answer.state else ""
    told = f"; {drain_told(answer.drain, answer.as_of.log_time_ms)}" if answer.drain is not None else ""
    nothing = ", there was nothing to do" if answer.outcome == "unchanged" else ""
    return f"{what}: {answer.outcome}{nothing}{state}{told}"
