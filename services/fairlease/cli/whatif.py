"""`fairlease whatif`: a cell's own log, played again as it was and with a change; side by side with what was.

The change is looked at before anything is played. What the log cannot tell is assumed by rules, and these are part of
the answer: the log played again without the change shows what they cost.
"""

import argparse
from typing import Any, Final

import msgspec

from fairlease.cli.compare import write_page
from fairlease.cli.exits import FAILED, OK, USAGE, CommandError
from fairlease.cli.history import folded, opened
from fairlease.cli.numbers import judge, number_of, policy_of
from fairlease.cli.output import Output, output_of, print_data, print_text
from fairlease.cli.table import Column, Style, facts, table
from fairlease.cli.toml_file import toml_of
from fairlease.cli.twice import played_twice
from fairlease.cli.wording import count, length
from fairlease.core.metrics.integral import Period
from fairlease.simulator.again import Change
from fairlease.simulator.comparison import shown, what_if
from fairlease.simulator.page.file import problem_of_place
from fairlease.simulator.page.whatif import whatif_page
from fairlease.simulator.page.words import FIGURES
from fairlease.simulator.past import Past, Reading
from fairlease.simulator.policies import BUDGET_WINDOW, POLICIES
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.comparison import WhatIf
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import DAY_MS

Data = dict[str, Any]

_SHOWN_JOBS: Final = 10
_WAY_OUT: Final = "`fairlease policy show` names every number with its value"


def run(args: argparse.Namespace) -> int:
    """0 with the answer; CommandError for a change or a log that is wrong, and when a run comes to no end."""
    output = output_of(args)
    change = _change(args)
    if problem := problem_of_place(args.html, args.log, args.policy_file):
        raise CommandError(USAGE, problem)
    past = _past(args.log, output)
    _check(past, change)
    again, would = played_twice(past, change, output)
    found = what_if(past, again, would, _named(args))
    if output.form in ("table", "wide"):
        print_text(_table(found, output.style, args.lang))
    else:
        print_data(output.form, msgspec.json.encode(found), [one.job for one in found.jobs])
    if args.html:
        write_page(args.html, whatif_page(found, past.report, again, would, args.lang), output)
    return OK


def _past(path: str, output: Output) -> Past:
    with opened(path) as log:
        if not log.first_ms:
            raise CommandError(
                FAILED, "nothing has happened in this log", way_out="name the log of a cell that ran jobs"
            )
        period = Period(log.first_ms - 1, log.last_ms)
        reading = Reading(period)
        return reading.past(folded(log, period, reading.take, output))


# the change ------------------------------------------------------------------------------------------
def _change(args: argparse.Namespace) -> Change:
    """What is asked for; CommandError when nothing is, or when it is no policy."""
    if not (args.policy or args.policy_file or args.numbers or args.weight):
        text = "nothing is to be otherwise"
        raise CommandError(USAGE, text, way_out="say --set KEY=VALUE, --weight BUDGET=N, --policy-file or --policy")
    if args.policy and args.policy not in POLICIES:
        way_out = f"the policies are {', '.join(POLICIES)}"
        raise CommandError(USAGE, f"--policy: {args.policy!r} is not a policy", way_out=way_out)
    policy = _policy_file(args.policy_file)
    numbers = {key: number_of(key, value) for key, value in args.numbers}
    change = Change(
        ruler=args.policy or BUDGET_WINDOW,
        policy=policy,
        numbers=numbers,
        budgets=tuple(ChangeBudget(budget=budget, weight=_weight(budget, value)) for budget, value in args.weight),
    )
    judge(change.of(Policy()))
    return change


def _policy_file(path: str | None) -> Policy | None:
    if path is None:
        return None
    numbers = toml_of("--policy-file", path, _WAY_OUT)
    try:
        return policy_of(numbers)
    except CommandError as error:
        raise CommandError(error.code, f"--policy-file {path}: {error.text}", way_out=error.way_out) from error


def _weight(budget: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < int(value[:10]) <= 1_000_000):
        text = f"--weight {budget}={value[:40]}: is no weight"
        raise CommandError(USAGE, text, way_out="write a whole number from 1 to 1000000")
    return int(value)


def _check(past: Past, change: Change) -> None:
    """CommandError for a change of what the log does not know."""
    for one in past.policies:
        judge(change.of(one.policy))
    known = {heard.said.budget for heard in past.heard if isinstance(heard.said, ChangeBudget)}
    for wanted in change.budgets:
        if wanted.budget not in known:
            way_out = f"it knows: {', '.join(sorted(known)[:12])}"
            raise CommandError(USAGE, f"--weight: the log makes no budget {wanted.budget[:63]}", way_out=way_out)


def _named(args: argparse.Namespace) -> dict[str, str]:
    """What is otherwise, as it was asked for."""
    named = {"policy": args.policy, "policy-file": args.policy_file}
    return {
        **{key: value for key, value in named.items() if value},
        **dict(args.numbers),
        **{f"weight {budget}": value for budget, value in args.weight},
    }


# the answer ------------------------------------------------------------------------------------------
def _table(found: WhatIf, style: Style, lang: str) -> str:
    columns = [Column("FIGURE"), *(Column(title, is_number=True) for title in ("WAS", "AGAIN", "WOULD"))]
    rows = [
        (words[lang], *(shown(name, value) for value in (one.was, one.again, one.would)))
        for name, words in FIGURES.items()
        if (one := found.figures.get(name)) is not None
    ]
    changed = ", ".join(f"{key}={value}" for key, value in found.change.items())
    span = f"{length(round(found.days * DAY_MS))} on {count(found.hosts, 'host')}"
    head = f"{span}; WAS: the log, AGAIN: the same played again, WOULD: with {changed}\n"
    jobs = f"{count(found.earlier, 'job')} would start earlier than AGAIN, {found.later} later, {found.same} as then\n"
    told = [(one.rule, f"{one.count:,}") for one in found.rules]
    parts = [head, table(columns, rows, style), jobs]
    if found.jobs:
        parts.append(_jobs(found, style))
    return "\n".join(
        [*parts, "assumed, with how many things each met\n" + facts(((n, rule) for rule, n in told), style.width)]
    )


def _jobs(found: WhatIf, style: Style) -> str:
    columns = [
        Column("JOB"),
        Column("BUDGET", is_flexible=True),
        *(Column(title, is_number=True) for title in ("WAITED", "AGAIN", "WOULD")),
    ]
    rows = (
        (one.job, one.budget, *(_length(value) for value in (one.was_ms, one.again_ms, one.would_ms)))
        for one in found.jobs[:_SHOWN_JOBS]
    )
    return table(columns, rows, style)


def _length(length_ms: int | None) -> str:
    return "-" if length_ms is None else length(length_ms)
