"""`fairlease cost`: GPU-hours and money by job, budget, person, evaluation or pool, and what a success cost."""

import argparse
import tomllib
from typing import Any, Final

import msgspec

from fairlease.cli.exits import USAGE, CommandError
from fairlease.cli.history import check_scope, folded, opened, period_of, scope_of
from fairlease.cli.output import output_of, print_data, print_text
from fairlease.cli.parser import price
from fairlease.cli.table import Column, Style, table
from fairlease.core.metrics.cost import By, Spent, costs
from fairlease.figures.report import gpu_hours
from fairlease.figures.wording import gpu_hours as shown_hours
from fairlease.runtime import plain_file
from fairlease.runtime.plain_file import why
from fairlease_schemas.ids import PoolId

MICROS: Final = 1_000_000
"""Of the unit that prices are in."""


def run(args: argparse.Namespace) -> int:
    """Print the rows, the dearest first, and their total; 0, or CommandError."""
    output, scope, by = output_of(args), scope_of(args), By(args.by)
    prices = _prices(args)
    with opened(args.log) as log:
        period = period_of(args, log)
        world = folded(log, period, lambda _world, _record, _stored_ms: None, output)
    check_scope(world, scope)
    _check_pools(dict(args.price), {*world.fleet.pools(), *world.fleet.schedulable})
    rows, total = costs(world.jobs.values(), world.tree, period, by, scope, prices, evaluations=world.evaluations)
    if output.form in ("table", "wide"):
        foot = (
            ""
            if output.is_quiet
            else _foot(by, prices, total) + f"\nas of log position {world.epoch}-{world.position}\n"
        )
        print_text(_table(by, rows, total, output.style, is_quiet=output.is_quiet) + foot)
        return 0
    view = {
        "apiVersion": "fairlease/v1",
        "kind": "Cost",
        "by": str(by),
        "period": {"since_ms": period.since_ms, "until_ms": period.until_ms},
        "prices": {pool: amount / MICROS for pool, amount in sorted(prices.items())},
        "rows": [{"key": row.key, **_data(row), **_outcome(by, row)} for row in rows],
        "total": {**_data(total), **_passes(by, total)},
        "as_of": {"epoch": world.epoch, "position": world.position, "log_time_ms": world.log_time_ms},
    }
    print_data(output.form, msgspec.json.encode(view), [row.key for row in rows])
    return 0


def _prices(args: argparse.Namespace) -> dict[PoolId, int]:
    """The prices of the file, under those of the command line; CommandError 64 for what is no price."""
    prices: dict[PoolId, int] = {}
    if args.prices:
        try:
            text = plain_file.text(args.prices)
            read: dict[str, Any] = tomllib.loads(text, parse_float=str)
            prices |= dict(price(f"{pool}={amount}") for pool, amount in read.items())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, argparse.ArgumentTypeError) as error:
            way_out = "write lines such as h100 = 2.50"
            raise CommandError(USAGE, f"--prices {args.prices}: {why(error)}", way_out=way_out) from error
    return prices | dict(args.price)


def _check_pools(prices: dict[PoolId, int], pools: set[PoolId]) -> None:
    """CommandError 64 for a price that was typed for a pool that the log does not know: it would do nothing.

    A file of prices may be that of a whole site.
    """
    unknown = sorted(prices.keys() - pools)
    if unknown:
        way_out = f"pools: {', '.join(sorted(pools)[:8]) or 'none yet, no host is registered'}"
        raise CommandError(USAGE, f"a price for {', '.join(unknown)}, which is no pool of the log", way_out=way_out)


def _data(row: Spent) -> dict[str, Any]:
    """A row's keys, whatever it is told by."""
    return {
        "jobs": row.jobs,
        "succeeded": row.succeeded,
        "held_gpu_h": gpu_hours(row.held_gpu_ms),
        "lost_gpu_h": gpu_hours(row.lost_gpu_ms),
        "money": _money(row.money_micros),
        "gpu_h_per_success": None if row.gpu_ms_per_success is None else gpu_hours(row.gpu_ms_per_success),
        "money_per_success": _money(row.money_per_success_micros),
    }


def _outcome(by: By, row: Spent) -> dict[str, Any]:
    """What became of an evaluation, null where nobody recorded it."""
    return {"outcome": row.outcome} if by is By.EVALUATION else {}


def _passes(by: By, total: Spent) -> dict[str, Any]:
    """How many evaluations were passed, and what one of them cost, with those that were not."""
    if by is not By.EVALUATION:
        return {}
    return {
        "passed": total.passed,
        "gpu_h_per_pass": None if total.gpu_ms_per_pass is None else gpu_hours(total.gpu_ms_per_pass),
        "money_per_pass": _money(total.money_per_pass_micros),
    }


def _money(amount_micros: int | None) -> float | None:
    return None if amount_micros is None else amount_micros / MICROS


def _table(by: By, rows: tuple[Spent, ...], total: Spent, style: Style, *, is_quiet: bool) -> str:
    has_money = total.money_micros is not None or any(row.money_micros is not None for row in rows)
    columns = (
        Column(str(by).upper(), is_flexible=by is not By.JOB),
        Column("JOBS", is_number=True),
        Column("SUCCEEDED", is_number=True),
        Column("HELD GPU-H", is_number=True),
        Column("LOST", is_number=True),
        Column("GPU-H PER SUCCESS", is_number=True),
        *((Column("COST", is_number=True), Column("COST PER SUCCESS", is_number=True)) if has_money else ()),
        *((Column("OUTCOME"),) if by is By.EVALUATION else ()),
    )
    is_judged = by is By.EVALUATION
    shown = [(row.key, row) for row in rows] + ([] if is_quiet or not rows else [("total", total)])
    cells = [
        (
            key,
            str(row.jobs),
            str(row.succeeded),
            shown_hours(row.held_gpu_ms),
            shown_hours(row.lost_gpu_ms),
            "-" if row.gpu_ms_per_success is None else shown_hours(row.gpu_ms_per_success),
            *((_amount(row.money_micros), _amount(row.money_per_success_micros)) if has_money else ()),
            *((str(row.outcome or "-") if row is not total else f"{row.passed} passed",) if is_judged else ()),
        )
        for key, row in shown
    ]
    return table(columns, cells, style, has_titles=not is_quiet)


def _amount(amount_micros: int | None) -> str:
    """To the hundredth, halves up."""
    return "-" if amount_micros is None else f"{(amount_micros + MICROS // 200) // (MICROS // 100) / 100:,.2f}"


def _foot(by: By, prices: dict[PoolId, int], total: Spent) -> str:
    """What the rows leave out."""
    lines = []
    if by is By.EVALUATION:
        lines.append(_foot_of_passes(total))
    if not prices:
        lines.append("no prices: --price POOL=USD says what a GPU-hour costs\n")
    elif total.money_micros is None:
        lines.append("a pool that was used has no price, and rows with it have no cost\n")
    return "".join(lines)


def _foot_of_passes(total: Spent) -> str:
    """What a passed evaluation cost, or how to say that one was passed."""
    if total.gpu_ms_per_pass is None:
        return "no evaluation was passed: `fairlease evaluation record NAME --outcome passed` says so\n"
    money = "" if total.money_per_pass_micros is None else f" and {_amount(total.money_per_pass_micros)}"
    return f"a passed evaluation cost {shown_hours(total.gpu_ms_per_pass)} GPU-h{money}, failures and all\n"
