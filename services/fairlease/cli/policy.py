"""`policy set`, `policy accept`, and `--propose`: the numbers a cell is run by, at once or judged first (10.1).

Whoever accepts a proposal is shown what its report found, budget by budget.

Numbers come from a file, as `policy show -o yaml` writes one, or from `--set` on top of those in force; lengths may be
written with a unit. What a change comes to is decided by the ledger alone.
"""

import argparse
import asyncio
from typing import Any, Final

from fairlease.cli.document import MAX_BYTES, DocumentError, read_document
from fairlease.cli.exits import CONTRACT, USAGE, CommandError
from fairlease.cli.link import Link, Receipt, linked
from fairlease.cli.numbers import policy_of
from fairlease.cli.output import output_of, print_text
from fairlease.cli.proposals import told
from fairlease.cli.wishes import proposed, sent, tell
from fairlease.runtime import plain_file
from fairlease_schemas.commands import AcceptChange, ChangePolicy, ProposeChange
from fairlease_schemas.explain import PolicyView, ProposalsView
from fairlease_schemas.policy import Policy

_WAY_OUT: Final = "write it as `fairlease policy show -o yaml` does"


def run(args: argparse.Namespace) -> int:
    """Send `args.wish` and say what came of it: 0, or CommandError (1 when it was refused)."""
    return tell(args, asyncio.run(_sent(args)), *_told(args))


async def _sent(args: argparse.Namespace) -> Receipt:
    async with linked(args) as link:
        wish: ChangePolicy | ProposeChange | AcceptChange
        if args.wish == "accept-change":
            await _show(link, args)
            wish = AcceptChange(
                proposal=args.proposal, report=args.report or "", is_forced=args.force, reason=args.reason
            )
        else:
            change = ChangePolicy(name=args.name, policy=await _wanted(link, args), reason=args.reason)
            wish = change
            if args.propose:
                wish = ProposeChange(proposal=args.propose, changes=(change,), reason=args.reason)
        return await sent(link, wish, args.answer_timeout_ms)


async def _show(link: Link, args: argparse.Namespace) -> None:
    """What the reports on the proposal found, the named one alone if there is one, before it is accepted."""
    output = output_of(args)
    if output.form not in ("table", "wide") or output.is_quiet:
        return
    view = (await link.ask("proposals", {})).view
    assert isinstance(view, ProposalsView)
    reports = next((row.reports for row in view.rows if row.proposal == args.proposal), ())
    named = [one for one in reports if one.digest == args.report] or reports[-1:]
    print_text("".join(told(args.proposal, one, output.style) + "\n" for one in named))


async def _wanted(link: Link, args: argparse.Namespace) -> Policy:
    """The numbers of the file, or those in force, and `--set` on top; CommandError 65 for what is no policy."""
    if args.file is not None:
        numbers = _read(args.file)
    else:
        view = (await link.ask("policy", {})).view
        assert isinstance(view, PolicyView)
        numbers = dict(view.policy)
    numbers |= dict(args.set)
    return policy_of(numbers)


def _read(path: str) -> dict[str, Any]:
    """The numbers of a file: those alone, or a whole answer of `policy show`."""
    try:
        data = read_document(plain_file.read(path, MAX_BYTES)).data
    except DocumentError as error:
        place = error.place
        raise CommandError(CONTRACT, f"{path}:{place.line}:{place.column}: {error.text}", way_out=_WAY_OUT) from error
    except OSError as error:
        raise CommandError(USAGE, f"{path}: {error.strerror}", way_out="name a file that can be read") from error
    if isinstance(data, dict) and data.get("kind") == "Policy":
        data = data.get("policy")
    if not isinstance(data, dict):
        raise CommandError(CONTRACT, f"{path}: it is no table of numbers", way_out=_WAY_OUT)
    return data


def _told(args: argparse.Namespace) -> tuple[str, str]:
    """(what was sent, what is to be known of it once it was accepted).

    The answer does not say whether a forced acceptance was the first word or the second, so both are told.
    """
    if args.wish != "accept-change":
        return proposed(args.propose) if args.propose else (f"policy {args.name}", "")
    then = "forced, it holds once two accounts have said so, and until then `fairlease policy proposals` lists it"
    return f"accepting {args.proposal}", then if args.force else ""
