"""`plan`: what would happen to a contract now: start, evictions, cost, or what stands in its way.

The contract is read and judged here as for `submit`, and only its scheduling fields are asked about;
nothing is submitted. The exit code says whether it would start: 0 now or after evictions, 2 later,
200 refused.
"""

import argparse
import asyncio
import time

import msgspec

from fairlease.cli.exits import OK, REFUSED
from fairlease.cli.link import Answer, linked
from fairlease.cli.output import output_of, print_data, print_text, say_advice
from fairlease.cli.parser import account_of
from fairlease.cli.screens import names, screen
from fairlease.cli.submission import advice_on, read_submission
from fairlease_schemas.explain import PlanView

LATER = 2


def run(args: argparse.Namespace) -> int:
    """Ask, print, and leave with what it means; CommandError 65 for a contract that is none."""
    from fairlease_schemas.contract import scheduling_fields

    contract = read_submission(args).contract
    body = {
        "account": account_of(args),
        "budget": contract.spec.budget,
        "request": msgspec.to_builtins(scheduling_fields(contract)),
    }
    answer = asyncio.run(_asked(args, body))
    view = answer.view
    assert isinstance(view, PlanView)
    output = output_of(args)
    say_advice(output, advice_on(contract))
    if output.form in ("table", "wide"):
        now_ms = time.time_ns() // 1_000_000
        print_text(screen(view, now_ms, output.style, is_quiet=output.is_quiet, lang=args.lang))
    else:
        print_data(output.form, answer.raw, names(view))
    if view.when == "refused":
        return REFUSED
    return OK if view.when in ("now", "after-evictions") else LATER


async def _asked(args: argparse.Namespace, body: dict[str, object]) -> Answer:
    async with linked(args) as link:
        return await link.ask("plan", body)
