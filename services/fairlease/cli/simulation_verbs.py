"""The words of what runs in virtual time: `simulate`, `compare`, `explore`, `robust`, `whatif`, and their options."""

from fairlease.cli.leaves import Verbs, command
from fairlease.cli.parser import (
    Parser,
    aim,
    begin,
    case_names,
    choices,
    factor,
    grid,
    length_ms,
    name,
    names,
    number,
    output_options,
    pair,
    positive,
    ratio,
    seeds,
    whole,
)


def add_simulations(verbs: "Verbs[Parser]") -> None:
    """`simulate`, `compare`, `explore`, `robust` and `whatif`."""
    about = "play a workload in virtual time with the services' own rules"
    simulate = command(verbs, "simulate", "fairlease.simulator.command", [output_options()], about=about)
    what = simulate.add_mutually_exclusive_group(required=True)
    what.add_argument("--workload", metavar="lab-1024|FILE.toml", help="the reference workload, or one in its form")
    what.add_argument("--trace", metavar="FILE", help="a philly, helios or muri table, packed or not, or a saved log")
    _add_trace_options(simulate)
    simulate.add_argument("--hosts", type=grid, metavar="HxG", help="hosts x GPUs (128x8)")
    simulate.add_argument("--days", type=ratio, metavar="N", help="measured days of the workload (30)")
    simulate.add_argument("--warm-up", type=ratio, metavar="N", help="days before those (2)")
    simulate.add_argument("--seed", type=whole, default=1, metavar="N", help="of all chance (1)")
    about = "which rule decides, as of `compare` (budget-window)"
    simulate.add_argument("--policy", type=name, default="budget-window", metavar="NAME", help=about)
    simulate.add_argument("--log", metavar="FILE", help="write the log here (`replay` knows that of budget-window)")
    _add_page(simulate)
    _add_compare(verbs)
    _add_explore(verbs)
    _add_robust(verbs)
    _add_whatif(verbs)


def _add_trace_options(simulate: Parser) -> None:
    """What is asked of a trace; the rules of the report say what came of it."""
    trace = simulate.add_argument_group("of a trace")
    formats = ("philly", "helios", "muri", "log")
    trace.add_argument("--format", choices=formats, help="what the trace must be; else what its first line says")
    about = "leave out what arrives before: a date and time, or a length after the first arrival"
    trace.add_argument("--from", dest="begin", type=begin, metavar="TIME", help=about)
    trace.add_argument("--limit", type=positive, metavar="N", help="the first N jobs only")
    trace.add_argument("--runtime-factor", type=factor, metavar="X", help="multiply runtimes and limits (1)")
    trace.add_argument("--load", type=factor, metavar="X", help="divide the gaps between arrivals (1)")
    trace.add_argument("--weights", choices=("equal", "gpu-hours"), help="of the teams' budgets (equal)")
    trace.add_argument(
        "--checkpoint", type=length_ms, metavar="LENGTH", help="work between two (none; 15m with --mtbf-days)"
    )
    trace.add_argument("--startup", type=length_ms, metavar="LENGTH", help="from a grant to work (no time)")
    about = "a host breaks once in N days in the mean (never)"
    trace.add_argument("--mtbf-days", type=positive, metavar="N", help=about)


def _add_page(leaf: Parser) -> None:
    """How results of simulations are shown beside the table."""
    leaf.add_argument("--html", metavar="FILE", help="write a page with pictures too: one file that needs no network")
    leaf.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the page (en)")


def _add_span(leaf: Parser, about_hosts: str) -> None:
    """How much of a workload each run plays, and how many play at a time."""
    leaf.add_argument("--hosts", type=grid, metavar="HxG", help=about_hosts)
    leaf.add_argument("--days", type=ratio, metavar="N", help="measured days (30)")
    leaf.add_argument("--warm-up", type=ratio, metavar="N", help="days before those (2)")
    leaf.add_argument("--workers", type=positive, metavar="N", help="processes at a time (one for each core)")


def _add_compare(verbs: "Verbs[Parser]") -> None:
    about = "play a workload by several policies and seeds, and put the figures side by side"
    compare = command(verbs, "compare", "fairlease.cli.compare", [output_options()], about=about)
    about = "the reference workload, or one in its form (lab-1024)"
    compare.add_argument("--workload", default="lab-1024", metavar="lab-1024|FILE.toml", help=about)
    compare.add_argument("--policies", type=names, required=True, metavar="A,B,..", help="by name, the first is judged")
    compare.add_argument("--seeds", type=seeds, default=(1, 2, 3), metavar="A-B", help="1-3, or 1,4,7 (1-3)")
    _add_span(compare, "hosts x GPUs (128x8)")
    about = "limits for figures of the first policy; 1 is returned when one is missed"
    compare.add_argument("--must", metavar="FILE.toml|lab-1024", help=about)
    _add_page(compare)


def _add_explore(verbs: "Verbs[Parser]") -> None:
    about = "play a workload at every point of a grid over the numbers of a policy, and find those that none beats"
    explore = command(verbs, "explore", "fairlease.cli.explore", [output_options()], about=about)
    about = "the reference workload, or one in its form"
    explore.add_argument("--workload", default="lab-1024", metavar="lab-1024|FILE.toml", help=about)
    about = "values of one number of budget-window; repeatable. Without it, the points that --keep FILE has"
    explore.add_argument("--grid", type=choices, action="append", default=[], metavar="NUMBER=A,B,..", help=about)
    explore.add_argument("--sample", type=positive, metavar="N", help="N points of the grid, drawn evenly")
    explore.add_argument("--sample-seed", type=whole, default=1, metavar="N", help="of that draw (1)")
    explore.add_argument("--seeds", type=seeds, default=(1, 2, 3), metavar="A-B", help="1-3, or 1,4,7 (1-3)")
    _add_span(explore, "hosts x GPUs (128x8)")
    about = "write every run here as it ends, and take up those that are there"
    explore.add_argument("--keep", metavar="FILE.jsonl", help=about)
    about = "with --keep: take up runs by other rules of this program too"
    explore.add_argument("--any-code", action="store_true", help=about)
    about = "play nothing: what --keep FILE has by now, also while another exploration writes it"
    explore.add_argument("--show", action="store_true", help=about)
    about = "a figure and which end of it is best; repeatable, in the place of those that are usual"
    explore.add_argument("--aim", type=aim, action="append", default=[], metavar="FIGURE:least|most[:STEP]", help=about)
    about = "limits for figures of every point; 1 is returned when no point keeps them all"
    explore.add_argument("--must", metavar="FILE.toml|lab-1024", help=about)


def _add_robust(verbs: "Verbs[Parser]") -> None:
    about = "hold a policy against other demand, sizes, mixes, weights, and people who do not play fair"
    robust = command(verbs, "robust", "fairlease.cli.robust", [output_options()], about=about)
    about = "the cases and their limits; 1 is returned when one is missed (lab-1024)"
    robust.add_argument("--suite", default="lab-1024", metavar="lab-1024|FILE.toml", help=about)
    about = "only these of its cases, by name"
    robust.add_argument("--cases", type=case_names, metavar="A,B,..", help=about)
    robust.add_argument("--policy", type=name, default="budget-window", metavar="NAME", help="by name (budget-window)")
    robust.add_argument("--seeds", type=seeds, default=(21, 22, 23), metavar="A-B", help="21-23, or 1,4,7 (21-23)")
    _add_span(robust, "of cases that do not say their own (128x8)")
    about = "keep what each run found in this folder, and play no run again that is there"
    robust.add_argument("--keep", metavar="FOLDER", help=about)


def _add_whatif(verbs: "Verbs[Parser]") -> None:
    about = "what would have been: a recorded log played again under another policy"
    whatif = command(verbs, "whatif", "fairlease.cli.whatif", [output_options()], about=about)
    whatif.add_argument("--from", dest="log", required=True, metavar="LOG", help="a log that `replay --save` wrote")
    whatif.add_argument("--policy", type=name, metavar="NAME", help="decide by another rule, as of `compare`")
    whatif.add_argument("--policy-file", metavar="FILE.toml", help="a whole policy in the place of those in the log")
    about = "another number of every policy in the log; repeatable"
    whatif.add_argument(
        "--set", type=number, action="append", default=[], metavar="NUMBER=VALUE", dest="numbers", help=about
    )
    about = "another weight of a budget; repeatable"
    whatif.add_argument("--weight", type=pair, action="append", default=[], metavar="BUDGET=N", help=about)
    _add_page(whatif)
