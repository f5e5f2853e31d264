"""`fairlease cost`: GPU-hours and money by job, budget, person, evaluation or pool, and what a success cost."""

import argparse
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from fairlease.cli.exits import USAGE, CommandError
from fairlease.cli.figures import hours
from fairlease.cli.history import check_scope, folded, opened, period_of, scope_of
from fairlease.cli.output import output_of, print_data, print_text
from fairlease.cli.parser import price
from fairlease.cli.table import Column, Style, table
from fairlease.core.metrics.cost import By, Spent, costs
from fairlease.core.metrics.integral import PPM
from fairlease.core.metrics.report import gpu_hours
from fairlease_schemas.ids import PoolId


def run(args: argparse.Namespace) -> int:
    """Print the rows, the dearest first, and their total; 0, or CommandError."""
    output, scope, by = output_of(args), scope_of(args), By(args.by)
    prices = _prices(args)
    with opened(args.log) as log:
        period = period_of(args, log)
        world = folded(log, period, lambda _world, _record, _stored_ms: None, output)
    check_scope(world, scope)
    _check_pools(dict(args.price), {*world.fleet.pools(), *world.fleet.schedulable})
    rows, total = costs(world.jobs.values(), world.tree, period, by, scope, prices)
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
        "prices": {pool: amount / PPM for pool, amount in sorted(prices.items())},
        "rows": [{"key": row.key, **_data(by, row)} for row in rows],
        "total": _data(by, total),
        "as_of": {"epoch": world.epoch, "position": world.position, "log_time_ms": world.log_time_ms},
    }
    print_data(output.form, msgspec.json.encode(view), [row.key for row in rows])
    return 0


def _prices(args: argparse.Namespace) -> dict[PoolId, int]:
    """The prices of the file, under those of the command line; CommandError 64 for what is no price."""
    prices: dict[PoolId, int] = {}
    if args.prices:
        try:
            text = Path(args.prices).read_text(encoding="utf-8")
            read: dict[str, Any] = tomllib.loads(text, parse_float=str)
            prices |= dict(price(f"{pool}={amount}") for pool, amount in read.items())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, argparse.ArgumentTypeError) as error:
            way_out = "write lines such as h100 = 2.50"
            raise CommandError(USAGE, f"--prices {args.prices}: {error}", way_out=way_out) from error
    return prices | dict(args.price)


def _check_pools(prices: dict[PoolId, int], pools: set[PoolId]) -> None:
    """CommandError 64 for a price that was typed for a pool that the log does not know: it would do nothing.

    A file of prices may be that of a whole site.
    """
    unknown = sorted(prices.keys() - pools)
    if unknown:
        way_out = f"pools: {', '.join(sorted(pools)[:8]) or 'none yet, no host is registered'}"
        raise CommandError(USAGE, f"a price for {', '.join(unknown)}, which is no pool of the log", way_out=way_out)


def _data(by: By, row: Spent) -> dict[str, Any]:
    """A row's keys. Whether an evaluation was passed the log does not say."""
    found = {
        "jobs": row.jobs,
        "succeeded": row.succeeded,
        "held_gpu_h": gpu_hours(row.held_gpu_ms),
        "lost_gpu_h": gpu_hours(row.lost_gpu_ms),
        "money": _money(row.money_ppm),
        "gpu_h_per_success": None if row.gpu_ms_per_success is None else gpu_hours(row.gpu_ms_per_success),
        "money_per_success": _money(row.money_ppm_per_success),
    }
    return found | {"outcome": None} if by is By.EVALUATION else found


def _money(amount_ppm: int | None) -> float | None:
    return None if amount_ppm is None else amount_ppm / PPM


def _table(by: By, rows: tuple[Spent, ...], total: Spent, style: Style, *, is_quiet: bool) -> str:
    has_money = total.money_ppm is not None or any(row.money_ppm is not None for row in rows)
    columns = (
        Column(str(by).upper(), is_flexible=by is not By.JOB),
        Column("JOBS", is_number=True),
        Column("SUCCEEDED", is_number=True),
        Column("HELD GPU-H", is_number=True),
        Column("LOST", is_number=True),
        Column("GPU-H PER SUCCESS", is_number=True),
        *((Column("COST", is_number=True), Column("COST PER SUCCESS", is_number=True)) if has_money else ()),
    )
    shown = [(row.key, row) for row in rows] + ([] if is_quiet or not rows else [("total", total)])
    cells = [
        (
            key,
            str(row.jobs),
            str(row.succeeded),
            hours(gpu_hours(row.held_gpu_ms)),
            hours(gpu_hours(row.lost_gpu_ms)),
            "-" if row.gpu_ms_per_success is None else hours(gpu_hours(row.gpu_ms_per_success)),
            *((_amount(row.money_ppm), _amount(row.money_ppm_per_success)) if has_money else ()),
        )
        for key, row in shown
    ]
    return table(columns, cells, style, has_titles=not is_quiet)


def _amount(amount_ppm: int | None) -> str:
    """To the hundredth, halves up."""
    return "-" if amount_ppm is None else f"{(amount_ppm + PPM // 200) // (PPM // 100) / 100:,.2f}"


def _foot(by: By, prices: dict[PoolId, int], total: Spent) -> str:
    """What the rows leave out."""
    lines = []
    if by is By.EVALUATION:
        lines.append("whether an evaluation was passed is not in the log: this is what its jobs cost\n")
    if not prices:
        lines.append("no prices: --price POOL=USD says what a GPU-hour costs\n")
    elif total.money_ppm is None:
        lines.append("a pool that was used has no price, and rows with it have no cost\n")
    return "".join(lines)
