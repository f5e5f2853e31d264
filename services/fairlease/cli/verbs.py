"""Every command of this program: its words, its options, and the module that carries it out.

A command's module is spelled as text and imported when the command runs. It offers `run(args) -> int`;
its arguments arrive under the names written here. Grids such as `4x8` arrive as (hosts, GPUs per
host), lengths of a contract as they were typed, all other lengths as milliseconds.
"""

import argparse
from pathlib import Path
from typing import Final

from fairlease.cli.parser import (
    Parser,
    account,
    address,
    after,
    agent,
    answer_options,
    array,
    begin,
    block,
    check,
    factor,
    grid,
    identity_options,
    instant,
    job,
    label,
    length,
    length_ms,
    memory,
    name,
    output_options,
    pair,
    path,
    positive,
    price,
    ratio,
    score,
    simulated,
    whole,
)

SERVICES: Final = ("admission", "ledger", "ranker", "placement", "preemption", "health", "explainer", "agent")
STATES: Final = (
    *("waiting", "dependent", "held", "backoff", "granted", "running", "stopping"),
    *("succeeded", "failed", "cancelled", "timed-out"),
)
COSTS: Final = ("job", "budget", "person", "evaluation", "pool")
_QUESTIONS: Final = "fairlease.cli.questions"
_WISHES: Final = "fairlease.cli.wishes"
_LOGS: Final = "fairlease.cli.logs"

_Verbs = argparse._SubParsersAction  # noqa: SLF001 - argparse gives this type no public name


class _Version(argparse.Action):
    """`--version`, which looks the version up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print("fairlease", version("fairlease"))
        except PackageNotFoundError:
            print("fairlease (not installed: running from the sources)")
        parser.exit()


def build() -> Parser:
    """The parser of the whole command line."""
    root = Parser(prog="fairlease", description="A GPU-cluster scheduler whose every decision is on record.")
    root.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    verbs = root.add_subparsers(title="commands", dest="verb", metavar="COMMAND", required=True)
    shared = [output_options(), identity_options()]
    _add_submit(verbs, [*shared, answer_options()])
    _add_bundle(verbs, [output_options()])
    _add_questions(verbs, shared)
    _add_job(verbs, shared)
    _add_evaluation(verbs, shared)
    _add_host_and_budget(verbs, shared)
    _add_figures(verbs)
    _add_programs(verbs)
    return root


def _leaf(verbs: "_Verbs[Parser]", word: str, module: str, parents: list[Parser], *, about: str) -> Parser:
    """One command, carried out by `module`."""
    leaf = verbs.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".", parents=parents)
    leaf.set_defaults(module=module, leaf=leaf)
    return leaf


def _branch(verbs: "_Verbs[Parser]", word: str, about: str) -> "_Verbs[Parser]":
    """A word that needs a second one, such as `job show`."""
    branch = verbs.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".")
    return branch.add_subparsers(title="commands", dest="action", metavar="COMMAND", required=True)


def _add_submit(verbs: "_Verbs[Parser]", parents: list[Parser]) -> None:
    leaf = _leaf(verbs, "submit", "fairlease.cli.submit", parents, about="hand in a job: a contract file, or -- CMD")
    leaf.usage = "fairlease submit [FILE] [options] [-- CMD ...]"
    leaf.set_defaults(takes_command=True)
    leaf.add_argument("file", nargs="?", metavar="FILE", help="contract in YAML or JSON, - for standard input")
    _add_terms(leaf)
    ways = leaf.add_argument_group("submission")
    ways.add_argument("--request-id", metavar="ID", help="the same id and contract again is the same job (random)")
    ways.add_argument("--dry-run", action="store_true", help="check, print the whole contract, submit nothing")
    ways.add_argument("--wait", action="store_true", help="wait for the end and exit with the job's code")
    ways.add_argument("--follow", action="store_true", help="--wait, with the job's log on standard output")
    ways.add_argument(
        "--interactive", action="store_true", help="a terminal in the debug lane: a GPU, 15m and a shell if not said"
    )
    ways.add_argument(
        "--start-timeout",
        type=length_ms,
        dest="start_timeout_ms",
        metavar="LENGTH",
        help="when waiting: exit with 207 when the job has not started by then; the job goes on waiting",
    )


def _add_terms(leaf: Parser) -> None:
    """A contract's terms as options, for commands that take a contract."""
    terms = leaf.add_argument_group("contract", "written without a file, or in place of what the file says")
    terms.add_argument("--name", dest="job_name", metavar="TEXT", help="what the job is called")
    terms.add_argument("--budget", type=name, help="the leaf of the budget tree that is charged")
    terms.add_argument("--hosts", type=positive, metavar="N", help="hosts of the gang (1)")
    terms.add_argument("--gpus-per-host", "--gpus", type=positive, metavar="N", help="GPUs on each host (1)")
    terms.add_argument("--min-runtime", type=length, metavar="LENGTH", help="the window nobody may preempt in")
    terms.add_argument("--timeout", type=length, metavar="LENGTH", help="wall limit of one attempt")
    terms.add_argument("--on-timeout", choices=("fail", "requeue"), help="what the wall limit does (fail)")
    terms.add_argument("--pool", type=name, action="append", metavar="NAME", help="accepted pool, in order; repeatable")
    terms.add_argument("--lane", choices=("debug",), help="ask for the debug lane")
    terms.add_argument("--max-retries", type=whole, metavar="N", help="retries after the job's own failures (0)")
    terms.add_argument(
        "--grace", type=length, metavar="LENGTH", help="time between the notice and the TERM to all (30s)"
    )
    terms.add_argument("--not-resumable", action="store_true", help="an attempt cannot go on from a checkpoint")
    terms.add_argument("--env", type=pair, action="append", metavar="K=V", help="environment of the job; repeatable")
    terms.add_argument("--bundle", metavar="DIR", help="the code: what is in DIR, which the job finds where it works")
    _add_host_terms(leaf)
    _add_more_terms(leaf)


def _add_host_terms(leaf: Parser) -> None:
    """What the hosts of a gang must have and be, as options."""
    asks = leaf.add_argument_group("hosts", "what each host of the gang must have and be")
    asks.add_argument("--cpu-per-host", type=positive, metavar="N", help="cores on each host (the GPUs' part of it)")
    asks.add_argument("--memory-per-host", type=memory, metavar="SIZE", help="for example 512Gi (the GPUs' part of it)")
    asks.add_argument("--disk-per-host", type=memory, metavar="SIZE", help="for example 2Ti (the GPUs' part of it)")
    asks.add_argument("--gpu-model", action="append", metavar="TEXT", help="a GPU model that will do; repeatable")
    asks.add_argument("--min-gpu-memory", type=memory, metavar="SIZE", help="memory of one GPU, for example 79Gi")
    asks.add_argument("--host-label", type=pair, action="append", metavar="K=V", help="a label of the host; repeatable")
    asks.add_argument("--same-block", action="store_true", default=None, help="all hosts in one topology block")


def _add_more_terms(leaf: Parser) -> None:
    """How a job saves itself, what it waits for, and what it runs, as options."""
    more = leaf.add_argument_group("more of the contract")
    more.add_argument("--checkpoint-uri", metavar="URI", help="where checkpoints go: s3, gs, az, or store:NAME/PATH")
    more.add_argument("--checkpoint-interval", type=length, metavar="LENGTH", help="how often the job saves itself")
    more.add_argument(
        "--checkpoint-signal", choices=("TERM", "USR1", "USR2", "none"), help="what tells it to save itself (TERM)"
    )
    more.add_argument("--array", type=array, metavar="N[%M]", help="N like jobs with an index, M at a time")
    more.add_argument(
        "--after", type=after, action="append", metavar="JOB[:any]", help="a job or array to wait for; repeatable"
    )
    more.add_argument("--evaluation", type=name, metavar="NAME", help="the evaluation that the job belongs to")
    more.add_argument("--label", type=pair, action="append", metavar="K=V", help="a label of the job; repeatable")
    more.add_argument("--image", metavar="IMAGE", help="container image; then the command may be left out")
    more.add_argument(
        "--secret", type=pair, action="append", metavar="K=secret:NAME", help="a secret by its name; repeatable"
    )
    more.add_argument("--source-repo", metavar="URL", help="repository of the code, with --source-commit")
    more.add_argument("--source-commit", metavar="SHA", help="whole commit id of the code")
    more.add_argument("--source-bundle", metavar="DIGEST", help="the code as a bundle, sha256:…")
    more.add_argument("--start-limit", type=length, metavar="LENGTH", help="how long the gang may take to start (10m)")


def _add_bundle(verbs: "_Verbs[Parser]", parents: list[Parser]) -> None:
    about = "the digest of a directory as a code bundle; uploads nothing"
    leaf = _leaf(verbs, "bundle", "fairlease.cli.bundle", parents, about=about)
    leaf.add_argument("directory", metavar="DIR", help="what .fairleaseignore names in it stays out, and .git")


def _past(leaf: Parser) -> None:
    """A question that may be asked of an earlier position of the log."""
    leaf.add_argument("--at", type=positive, metavar="POSITION", help="as it was at this position of the log")


def _add_questions(verbs: "_Verbs[Parser]", parents: list[Parser]) -> None:
    queue = _leaf(verbs, "queue", _QUESTIONS, parents, about="running and waiting jobs, with reasons")
    queue.set_defaults(question="queue")
    queue.add_argument("--limit", type=positive, default=50, metavar="N", help="rows at most (50)")
    queue.add_argument("--budget", type=name, metavar="NAME", help="only jobs of this budget")
    queue.add_argument("--start", action="store_true", help="when each waiting job will have started at the latest")
    _past(queue)
    whose = queue.add_mutually_exclusive_group()
    whose.add_argument("--me", action="store_true", help="only jobs of the asking account")
    whose.add_argument("--submitter", type=name, metavar="NAME", help="only jobs of this account")
    why = _leaf(verbs, "why", _QUESTIONS, parents, about="why a job is where it is, and what would change it")
    why.set_defaults(question="why")
    why.add_argument("job", type=job, metavar="JOB")
    _past(why)
    why.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the sentences (en)")
    rank = _leaf(verbs, "rank", _QUESTIONS, parents, about="who is next, and by which numbers")
    rank.set_defaults(question="rank")
    rank.add_argument("--limit", type=positive, default=50, metavar="N", help="rows at most (50)")
    _past(rank)
    plan = _leaf(
        verbs, "plan", "fairlease.cli.plan", parents, about="what would happen to a contract now; submits nothing"
    )
    plan.usage = "fairlease plan [FILE] [options] [-- CMD ...]"
    plan.set_defaults(takes_command=True, request_id="plan", interactive=False)
    plan.add_argument("file", nargs="?", metavar="FILE", help="contract in YAML or JSON, - for standard input")
    plan.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the sentences (en)")
    _add_terms(plan)
    shares = _leaf(verbs, "shares", _QUESTIONS, parents, about="the budget tree: entitled, used, promised, standing")
    shares.set_defaults(question="shares", budget=None)
    _past(shares)
    _leaf(verbs, "hosts", _QUESTIONS, parents, about="hosts, their devices and holds").set_defaults(question="hosts")
    policy = _branch(verbs, "policy", "the numbers the cell is run by")
    _leaf(policy, "show", _QUESTIONS, parents, about="the policy in force").set_defaults(question="policy")


def _add_job(verbs: "_Verbs[Parser]", parents: list[Parser]) -> None:
    words = _branch(verbs, "job", "one job: show, logs, attach, cancel, hold, release")
    show = _leaf(words, "show", _QUESTIONS, parents, about="a job, its contract and its attempts")
    show.set_defaults(question="job")
    show.add_argument("job", type=job, metavar="JOB")
    logs = _leaf(words, "logs", _LOGS, parents, about="what the job wrote")
    logs.add_argument("job", type=job, metavar="JOB")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    logs.add_argument("--attempt", type=positive, metavar="N", help="this attempt (the latest)")
    logs.add_argument("--host", type=name, metavar="NAME", help="only the part on this host")
    attach = _leaf(words, "attach", "fairlease.cli.attach", parents, about="a job's terminal; ctrl-] d leaves it")
    attach.add_argument("job", type=job, metavar="JOB")
    attach.add_argument("--read-only", action="store_true", help="look on, type nothing")
    cancel = _leaf(words, "cancel", _WISHES, [*parents, answer_options()], about="end a job, by its grace if it runs")
    cancel.set_defaults(wish="cancel-job")
    cancel.add_argument("job", type=job, metavar="JOB")
    hold = _leaf(words, "hold", _WISHES, [*parents, answer_options()], about="keep a waiting job from competing")
    hold.set_defaults(wish="hold-job")
    hold.add_argument("job", type=job, metavar="JOB")
    hold.add_argument("--reason", default="", metavar="TEXT", help="kept in the log with the hold")
    release = _leaf(words, "release", _WISHES, [*parents, answer_options()], about="let a held job compete again")
    release.set_defaults(wish="release-job")
    release.add_argument("job", type=job, metavar="JOB")


def _add_evaluation(verbs: "_Verbs[Parser]", parents: list[Parser]) -> None:
    words = _branch(verbs, "evaluation", "an evaluation: record what became of it")
    about = "say that an evaluation was passed, failed, or came to no result"
    record = _leaf(words, "record", _WISHES, [*parents, answer_options()], about=about)
    record.set_defaults(wish="record-evaluation")
    record.add_argument("evaluation", type=name, metavar="NAME", help="the evaluation that jobs name")
    record.add_argument("--outcome", choices=("passed", "failed", "error"), required=True, help="what it came to")
    record.add_argument("--score", type=score, metavar="N", help="what was measured, such as 0.873")
    record.add_argument("--job", type=job, metavar="JOB", help="the job that decided it")
    record.add_argument("--budget", type=name, metavar="NAME", help="where jobs of several budgets name it")
    record.add_argument("--request-id", metavar="ID", help="the same id again is the same record (random)")


def _add_host_and_budget(verbs: "_Verbs[Parser]", parents: list[Parser]) -> None:
    asking = [*parents, answer_options()]
    hosts = _branch(verbs, "host", "one host: cordon, drain, undrain, return")
    cordon = _leaf(hosts, "cordon", _WISHES, asking, about="give a host no new work; what runs there goes on")
    cordon.set_defaults(wish="cordon-host")
    cordon.add_argument("host", type=name, metavar="HOST")
    cordon.add_argument("--reason", default="", metavar="TEXT", help="said wherever the hold is shown")
    drain = _leaf(
        hosts, "drain", _WISHES, asking, about="empty a host for oneself; no window is broken, but at a deadline"
    )
    drain.set_defaults(wish="request-drain")
    drain.add_argument("host", type=name, metavar="HOST")
    drain.add_argument("--reason", default="", metavar="TEXT", help="said wherever the drain is shown")
    drain.add_argument(
        "--after", "--not-before", type=length_ms, metavar="LENGTH", help="not before so long from now (at once)"
    )
    drain.add_argument(
        "--deadline",
        type=length_ms,
        metavar="LENGTH",
        help="so long from now everybody left is told to leave, windows or not, and has grace and margin (never)",
    )
    drain.add_argument("--external-id", default="", metavar="TEXT", help="a ticket's number, kept with the drain")
    undrain = _leaf(hosts, "undrain", _WISHES, asking, about="call off one's own drain of a host")
    undrain.set_defaults(wish="undrain-host")
    undrain.add_argument("host", type=name, metavar="HOST")
    back = _leaf(hosts, "return", _WISHES, asking, about="take back one's own hold on a host")
    back.set_defaults(wish="return-host")
    back.add_argument("host", type=name, metavar="HOST")
    back.add_argument(
        "--check",
        type=check,
        action="append",
        default=[],
        metavar="NAME=CODE[:TEXT]",
        help="a check that was made just now: 0 ok, 1 warning, 2 critical, 3 unknown; repeatable",
    )
    budgets = _branch(verbs, "budget", "the budget tree: show, set, member")
    show = _leaf(
        budgets, "show", _QUESTIONS, parents, about="how a budget and those below it are set, and their shares"
    )
    show.set_defaults(question="shares", has_settings=True)
    show.add_argument("budget", nargs="?", type=name, metavar="NAME")
    change = _leaf(budgets, "set", _WISHES, asking, about="make, move or re-weight a budget")
    change.set_defaults(wish="change-budget")
    change.add_argument("budget", type=name, metavar="NAME")
    change.add_argument("--weight", type=whole, required=True, metavar="N", help="against its siblings' weights")
    change.add_argument("--parent", type=name, metavar="NAME", help="the node above (as it is; the root when new)")
    change.add_argument("--reason", default="", metavar="TEXT", help="kept in the log with the change")
    change.add_argument("--order", choices=("fifo", "least-attained", "smallest"), help="order of a leaf's own jobs")
    change.add_argument(
        "--max-protected-permille", type=whole, metavar="N", help="GPUs in windows, of the entitled GPUs now; 0: no cap"
    )
    change.add_argument(
        "--burst-permille", type=whole, metavar="N", help="GPUs held while others wait, of the entitled; 0: no cap"
    )
    member = _leaf(budgets, "member", _WISHES, asking, about="let an account submit in a budget, lead it, or neither")
    member.set_defaults(wish="change-member")
    member.add_argument("budget", type=name, metavar="NAME")
    member.add_argument("member", type=account, metavar="ACCOUNT", help="an account, or '*' for everybody")
    member.add_argument("--role", choices=("member", "lead", "none"), default="member", help="(member)")


def _add_figures(verbs: "_Verbs[Parser]") -> None:
    """What a log shows of a period: the figures, who used what, and what it cost."""
    metrics = _leaf(
        verbs, "metrics", "fairlease.cli.metrics", [output_options()], about="how the cell did, from its log"
    )
    metrics.add_argument("--pool", type=name, metavar="NAME", help="only this pool")
    metrics.add_argument("--job", type=job, metavar="JOB", help="only this job")
    acct = _leaf(
        verbs, "acct", "fairlease.cli.acct", [output_options()], about="what each attempt used and was charged"
    )
    acct.add_argument("jobs", nargs="*", type=job, metavar="JOB", help="only these (all)")
    acct.add_argument("--state", choices=STATES, metavar="STATE", help="only jobs in this state: " + ", ".join(STATES))
    cost = _leaf(verbs, "cost", "fairlease.cli.cost", [output_options()], about="GPU-hours and money, and per success")
    cost.add_argument("--by", choices=COSTS, default="budget", help="what a row is (budget)")
    cost.add_argument("--pool", type=name, metavar="NAME", help="only this pool")
    cost.add_argument(
        "--price",
        type=price,
        action="append",
        default=[],
        metavar="POOL=USD",
        help="what a GPU-hour of the pool costs; repeatable",
    )
    cost.add_argument("--prices", metavar="FILE", help="the same as lines POOL = USD in a TOML file")
    for leaf in (metrics, acct, cost):
        leaf.add_argument("--since", type=instant, metavar="WHEN", help="7d before the log's end, or 2026-11-30 (all)")
        leaf.add_argument("--until", type=instant, metavar="WHEN", help="in the same words (the log's end)")
        leaf.add_argument("--budget", type=name, metavar="NAME", help="only this budget and all below it")
        leaf.add_argument("--person", type=name, metavar="NAME", help="only jobs of this account")
        leaf.add_argument("--log", metavar="FILE", help="a saved log instead of the running cell's")


def _add_programs(verbs: "_Verbs[Parser]") -> None:
    replay = _leaf(
        verbs, "replay", "fairlease.replay.command", [output_options()], about="decide a log again and compare"
    )
    source = replay.add_mutually_exclusive_group(required=True)
    source.add_argument("log", nargs="?", metavar="LOG", help="an exported log")
    source.add_argument("--live", action="store_true", help="the log of the running cell")
    replay.add_argument("--save", metavar="FILE", help="with --live: also write the log here, one record to a line")
    trace = _branch(verbs, "trace", "recorded workloads")
    about = "play a trace on a cell of its own"
    play = _leaf(trace, "play", "fairlease.trace.command", [output_options()], about=about)
    play.add_argument("file", metavar="FILE")
    play.add_argument("--hosts", type=simulated, default=(20, 8), metavar="HxG", help="simulated hosts x GPUs (20x8)")
    play.add_argument("--speed", type=ratio, default=1.0, metavar="N", help="trace seconds per second (1)")
    play.add_argument("--cut", type=ratio, metavar="S", help="no job runs longer than S seconds of the cell's time")
    play.add_argument("--limit", type=positive, metavar="N", help="the first N jobs only")
    play.add_argument("--keep", metavar="DIR", help="keep the cell's state in this new directory")
    about = "play a workload in virtual time with the services' own rules"
    simulate = _leaf(verbs, "simulate", "fairlease.simulator.command", [output_options()], about=about)
    what = simulate.add_mutually_exclusive_group(required=True)
    what.add_argument("--workload", metavar="lab-1024|FILE.toml", help="the reference workload, or one in its form")
    what.add_argument("--trace", metavar="FILE", help="a philly, helios or muri table, packed or not, or a saved log")
    _add_trace_options(simulate)
    simulate.add_argument("--hosts", type=grid, metavar="HxG", help="hosts x GPUs (128x8)")
    simulate.add_argument("--days", type=ratio, metavar="N", help="measured days of the workload (30)")
    simulate.add_argument("--warm-up", type=ratio, metavar="N", help="days before those (2)")
    simulate.add_argument("--seed", type=whole, default=1, metavar="N", help="of all chance (1)")
    simulate.add_argument("--policy", choices=("budget-window",), default="budget-window", help="budget-window")
    simulate.add_argument("--log", metavar="FILE", help="write the log here, for `fairlease replay`")
    _add_cell(verbs)


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


def _add_cell(verbs: "_Verbs[Parser]") -> None:
    """What runs a cell or a part of it, and looks after it."""
    up = _leaf(verbs, "up", "fairlease.cli.up", [], about="start the bus, the services and an agent here")
    up.add_argument("--simulate-gpus", type=simulated, metavar="HxG", help="simulated hosts x GPUs, for example 4x8")
    up.add_argument("--replicas", type=positive, default=1, metavar="N", help="processes of each service (1)")
    up.add_argument(
        "--account", type=name, action="append", default=[], metavar="NAME", help="make an inbox for this account"
    )
    up.add_argument(
        "--bot", type=name, action="append", default=[], metavar="NAME", help="make an account that only serves hosts"
    )
    up.add_argument(
        "--agent",
        type=agent,
        action="append",
        default=[],
        metavar="NAME=HOST,..",
        help="make a key for an agent that is started elsewhere, with its hosts",
    )
    _add_site(up)
    _add_bus(verbs)
    serve = _leaf(verbs, "serve", "fairlease.cli.serve", [], about="run one service in the foreground")
    serve.add_argument("service", choices=SERVICES, metavar="SERVICE", help=", ".join(SERVICES))
    serve.add_argument("--simulate-gpus", type=simulated, metavar="HxG", help="agent: simulated hosts x GPUs")
    serve.add_argument(
        "--first-host", type=positive, default=1, metavar="N", help="agent: number of its first host (1)"
    )
    _add_site(serve)
    _leaf(
        verbs,
        "doctor",
        "fairlease.cli.doctor",
        [output_options(), identity_options()],
        about="what is wrong, and how to mend it",
    )
    debug = _branch(verbs, "debug", "what to show to somebody who helps")
    about = "one file without secrets: versions, settings, logs, streams, the doctor's report"
    bundle = _leaf(debug, "bundle", "fairlease.cli.debug", [output_options(), identity_options()], about=about)
    bundle.add_argument("file", metavar="FILE", help="a new file, such as cell.tar.gz")
    _leaf(verbs, "demo", "fairlease.cli.demo", [output_options()], about="the whole point in under two minutes")


def _add_bus(verbs: "_Verbs[Parser]") -> None:
    bus = _branch(verbs, "bus", "the bus of a cell that something else than `up` keeps running")
    about = "write the keys, accounts and server configurations of a cell"
    write = _leaf(bus, "write", "fairlease.cli.bus", [], about=about)
    write.add_argument("file", type=Path, metavar="CELL.toml", help="its servers, accounts and agents")
    write.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to; keys that are there stay")
    declare = _leaf(bus, "declare", "fairlease.cli.bus", [], about="make the streams of the cell that are missing")
    declare.add_argument("file", type=Path, metavar="CELL.toml", help="as for `write`")
    declare.add_argument(
        "--wait", type=length_ms, default=30_000, dest="wait_ms", metavar="LENGTH", help="for the servers (30s)"
    )
    serve = _leaf(bus, "serve", "fairlease.cli.bus", [], about="become one server of the bus, of the checked program")
    serve.add_argument("conf", type=Path, metavar="FILE", help="the server's configuration, as `write` made it")


def _add_site(leaf: Parser) -> None:
    """What an agent is told of its hosts because it cannot measure it."""
    site = leaf.add_argument_group("hosts", "what is said of the agent's hosts")
    site.add_argument(
        "--pool", type=name, metavar="NAME", help="the pool they join (FAIRLEASE_POOL, else the GPU model)"
    )
    site.add_argument(
        "--address", type=address, metavar="ADDR", help="where other hosts reach this one (FAIRLEASE_HOST_ADDRESS)"
    )
    site.add_argument(
        "--users", type=path, metavar="FILE", help="whose runs are whose, lines ACCOUNT USER (FAIRLEASE_USERS)"
    )
    site.add_argument("--block", type=block, metavar="PATH", help="where they stand, outermost first: row-a/rack-7")
    site.add_argument(
        "--label", type=label, action="append", default=[], metavar="K=V", help="a label for contracts; repeatable"
    )
    site.add_argument("--host", type=name, metavar="NAME", help="id of the host with real GPUs (the machine's name)")
