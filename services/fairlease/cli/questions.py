"""Commands that ask and print: queue, why, shares, hosts, job show, policy show, budget show.

Each is one question to the explainer and one view. `budget show` is how one part of the tree is set and its
shares, cut here; the rows of all views are printed in the order the explainer gave them.
"""

import argparse
import asyncio
import time
from typing import Any

import msgspec

from fairlease.cli.exits import FAILED, OK, CommandError
from fairlease.cli.failure import Kept, evidence, page, with_evidence
from fairlease.cli.link import Answer, linked
from fairlease.cli.output import output_of, print_data, print_text
from fairlease.cli.parser import account_of
from fairlease.cli.screens import names, screen
from fairlease.cli.shares import settings
from fairlease_schemas.explain import JobView, SharesView


def run(args: argparse.Namespace) -> int:
    """Ask `args.question`, print the view; 0, or CommandError."""
    answer, kept = asyncio.run(_asked(args))
    if args.question == "shares" and args.budget is not None:
        answer = _below(answer, args.budget)
    output = output_of(args)
    if output.form in ("table", "wide"):
        now_ms = time.time_ns() // 1_000_000
        lang, is_past = getattr(args, "lang", "en"), getattr(args, "at", None) is not None
        if isinstance(answer.view, SharesView) and getattr(args, "has_settings", False):
            print_text(settings(answer.view.nodes, output.style, is_quiet=output.is_quiet) + "\n")
        text = screen(answer.view, now_ms, output.style, is_quiet=output.is_quiet, lang=lang, is_past=is_past)
        print_text(text + page(kept))
    else:
        print_data(output.form, with_evidence(answer.raw, kept), names(answer.view))
    return OK


async def _asked(args: argparse.Namespace) -> tuple[Answer, list[Kept]]:
    """The answer, and of a job what is kept of an attempt that did not end well."""
    body = question_body(args)
    async with linked(args) as link:
        try:
            answer = await link.ask(args.question, body)
            return answer, await evidence(link, answer.view) if isinstance(answer.view, JobView) else []
        except CommandError as error:
            if error.facts.get("trouble") != "unknown-job" or "at" not in body:
                raise
            text = f"there was no job {body['job']} at position {body['at']} of the log"
            way_out = "ask about a later position, or without --at"
            raise CommandError(error.code, text, way_out=way_out, facts=error.facts) from error


def question_body(args: argparse.Namespace) -> dict[str, Any]:
    """What is asked, without the keys that do not apply."""
    match args.question:
        case "queue":
            account = account_of(args) if args.me else args.submitter
            body = {"limit": args.limit, "account": account, "budget": args.budget, "start": args.start or None}
        case "why":
            body = {"job": args.job}
        case "job":
            body = {"job": args.job}
        case "rank":
            body = {"limit": args.limit}
        case _:
            body = {}
    body["at"] = getattr(args, "at", None)
    return {key: value for key, value in body.items() if value is not None}


def _below(answer: Answer, budget: str) -> Answer:
    """The shares of one node and all below it; CommandError 1 when the tree has no such node."""
    assert isinstance(answer.view, SharesView)
    parents = {node.budget: node.parent for node in answer.view.nodes}
    parents |= {row.budget: row.parent for row in answer.view.rows}
    kept = {budget}
    for name, parent in parents.items():
        if parent in kept:
            kept.add(name)
    if budget not in parents:
        raise CommandError(
            FAILED,
            f"there is no budget {budget} in the tree",
            way_out="see the tree with `fairlease shares`",
            facts={"trouble": "unknown-budget"},
        )
    view = msgspec.json.decode(answer.raw)
    view["rows"] = [row for row in view["rows"] if row["budget"] in kept]
    view["nodes"] = [node for node in view.get("nodes", ()) if node["budget"] in kept]
    rows = tuple(row for row in answer.view.rows if row.budget in kept)
    nodes = tuple(node for node in answer.view.nodes if node.budget in kept)
    return Answer(msgspec.json.encode(view), msgspec.structs.replace(answer.view, rows=rows, nodes=nodes))
