"""Proposals of changes: who may make and accept them, and which report lets one hold (decisions.md 10).

A proposal is bound to the fold that it was made on, by position and the log's digest, and a report to both and to the
proposal's own changes. So a report cannot be made for another proposal, on another log, or after the policy or the
tree changed.
That its figures are true nobody here can see: the audit simulates again from the same position, seeds and version.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from fairlease_schemas import codec
from fairlease_schemas.change import ChangeEnd, ChangeForced, ChangeProposed, ChangeSimulated, ChangeWithdrawn
from fairlease_schemas.commands import AcceptChange, Change, ProposeChange, ReportChange
from fairlease_schemas.ids import AccountId, BudgetId, is_name
from fairlease_schemas.job import Problem
from fairlease_schemas.policy import Policy
from fairlease_schemas.simulated import BudgetFigures, Figures, SimulatedChange, Source

REPORTED = "reported"
MAX_PROPOSALS = 16
MAX_PROPOSALS_EACH = 4
"""Of one account: whoever leads some small budget could otherwise keep everybody else from proposing."""
MAX_CHANGES = 64
MAX_CHANGES_BYTES = 16 << 10
"""Of a proposal's changes: whoever asks is told all open proposals in one message."""
MAX_REPORTS = 8
MAX_BUDGETS = 500
KEPT_BUDGETS = 8
"""Of a report in the fold: those that differ most, for whoever is to accept it. The log keeps all."""
MAX_SEEDS = 100
MAX_FIGURE = 10**15
MAX_REASON = 200
AGAIN = "propose it again, and simulate that: fairlease policy simulate"


class Reported(msgspec.Struct, frozen=True, array_like=True):
    """When a report came, who sent it, and what is shown of it before anybody accepts it."""

    at_ms: int
    author: AccountId
    source: Source
    span_ms: int
    before: Figures
    after: Figures
    budgets: tuple[BudgetFigures, ...]


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """An open proposal: what was asked, on which fold, when, the reports that fit it, and who wants it forced.

    `reports` are by their digests, oldest first; `reporters` is who sent any, also one that is not kept.
    """

    author: AccountId
    changes: tuple[Change, ...]
    position: int
    log_digest: str
    change: str
    span_ms: int
    at_ms: int
    reports: dict[str, Reported] = {}
    forced_by: AccountId = ""
    reporters: dict[AccountId, bool] = {}


def proposed(event: ChangeProposed, now_ms: int) -> Proposal:
    """The proposal as the event opens it."""
    return Proposal(
        author=event.author,
        changes=event.changes,
        position=event.position,
        log_digest=event.log_digest,
        change=event.change,
        span_ms=event.span_ms,
        at_ms=now_ms,
    )


def with_report(proposal: Proposal, event: ChangeSimulated, now_ms: int) -> Proposal:
    """The proposal with one report more; of too many the oldest goes of whoever sent most.

    Anybody may report: so nobody pushes out what another sent.
    """
    differing = tuple(sorted(event.budgets, key=difference)[:KEPT_BUDGETS])
    told = Reported(now_ms, event.author, event.source, event.span_ms, event.before, event.after, differing)
    reports = {**proposal.reports, event.report: told}
    if len(reports) > MAX_REPORTS:
        sent = Counter(report.author for report in reports.values())
        del reports[max(reports, key=lambda digest: sent[reports[digest].author])]
    reporters = {**proposal.reporters, event.author: True}
    return msgspec.structs.replace(proposal, reports=reports, reporters=reporters)


def difference(one: BudgetFigures) -> tuple[int, BudgetId]:
    """Budgets in order: 1. the one whose fulfilment changes most, one that asks for nothing counting 0; 2. the id."""
    return -abs((one.after_permille or 0) - (one.before_permille or 0)), one.budget


def with_force(proposal: Proposal, event: ChangeForced) -> Proposal:
    """The proposal that somebody wants without a report."""
    return msgspec.structs.replace(proposal, forced_by=event.author)


def digest_of(report: SimulatedChange) -> str:
    """The digest that a report must bear: SHA-256 of it without one."""
    return codec.digest(msgspec.structs.replace(report, digest=""))


def digest_of_changes(changes: tuple[Change, ...]) -> str:
    """SHA-256 of the canonical changes, in their order."""
    return codec.digest(msgspec.to_builtins(changes))


def is_stale(proposal: Proposal, policy: Policy, changed_position: int, now_ms: int) -> bool:
    """Whether what the proposal saw is past: the policy or the tree changed after it, or its time is over."""
    return changed_position > proposal.position or now_ms > proposal.at_ms + policy.report_valid_ms


def gate_problem(policy: Policy, field: str, value: str) -> Problem | None:
    """Why a change may not be made at once; None where the policy asks for no report."""
    if policy.change_gate != REPORTED:
        return None
    return Problem(
        field=field,
        rule="10.1",
        value=value[:80],
        limit="a proposal with a report: the policy says change_gate reported",
        way_out="propose it with --propose, then fairlease policy simulate, then accept its report",
    )


# a proposal ------------------------------------------------------------------------------------------
def proposal_problem(proposals: Mapping[str, Proposal], who: AccountId, said: ProposeChange) -> Problem | None:
    """Why nobody may make this proposal, whatever its changes are."""
    if not is_name(said.proposal):
        limit, way_out = "1-63 of a-z 0-9 -", "choose another name"
        return Problem(field="proposal", rule="10.1", value=said.proposal[:80], limit=limit, way_out=way_out)
    if not 1 <= len(said.changes) <= MAX_CHANGES:
        value, limit = f"{len(said.changes)} changes", f"1-{MAX_CHANGES} changes"
        way_out = "name what shall change, and more than that in several proposals"
        return Problem(field="changes", rule="10.1", value=value, limit=limit, way_out=way_out)
    size = len(codec.canonical(msgspec.to_builtins(said.changes)))
    if size > MAX_CHANGES_BYTES:
        value, limit = f"{size} bytes", f"{MAX_CHANGES_BYTES} bytes of changes"
        way_out = "give shorter reasons, or make several proposals"
        return Problem(field="changes", rule="10.1", value=value, limit=limit, way_out=way_out)
    return _name_problem(proposals, who, said.proposal)


def _name_problem(proposals: Mapping[str, Proposal], who: AccountId, name: str) -> Problem | None:
    """Why there is no room for a proposal of this name by this account.

    One that somebody wants forced stays as it is: its second person would say yes to what took its place.
    """
    present = proposals.get(name)
    own = sum(proposal.author == who for proposal in proposals.values())
    value, way_out = name, "choose another name"
    if present is not None and present.author != who:
        limit = f"a proposal of {present.author}"
    elif present is not None and present.forced_by:
        limit = f"not replaced once {present.forced_by} wants it forced"
    elif present is None and own >= MAX_PROPOSALS_EACH:
        value, limit = f"{own} open proposals of {who}", f"{MAX_PROPOSALS_EACH} at once"
        way_out = "replace one, accept one, or wait until one is stale"
    elif present is None and len(proposals) >= MAX_PROPOSALS:
        value, limit = f"{len(proposals)} open proposals", f"{MAX_PROPOSALS} at once"
        way_out = "accept one, or wait until one is stale"
    else:
        return None
    return Problem(field="proposal", rule="10.1", value=value, limit=limit, way_out=way_out)


def withdrawn(
    proposals: Mapping[str, Proposal], said: ProposeChange, policy: Policy, changed_position: int, now_ms: int
) -> list[ChangeWithdrawn]:
    """What makes room for a proposal, by name: all whose time is over, and the one of its name."""
    stale = {name for name, one in proposals.items() if is_stale(one, policy, changed_position, now_ms)}
    replaced = {said.proposal} & set(proposals)
    return [
        ChangeWithdrawn(proposal=name, why=ChangeEnd.STALE if name in stale else ChangeEnd.REPLACED)
        for name in sorted(stale | replaced)
    ]


# a report --------------------------------------------------------------------------------------------
def report_problem(
    proposal: Proposal | None, who: AccountId, said: ReportChange, policy: Policy, changed_position: int, now_ms: int
) -> Problem | None:
    """Why the report does not fit its proposal, breaks a limit, or is its sender's second; None for one to accept.

    The log keeps every report for ever, and one proposal on one log has but one outcome: so an account reports once.
    """
    report = said.report
    if proposal is None:
        return _unknown(report.proposal)
    if is_stale(proposal, policy, changed_position, now_ms):
        return _stale(report.proposal, proposal, policy)
    if report.digest != digest_of(report):
        return _report(
            "digest",
            report.digest,
            "the SHA-256 of the report itself",
            "send the report as it was made, by one version",
        )
    for field, said_value, wanted in (
        ("position", str(report.position), str(proposal.position)),
        ("log_digest", report.log_digest, proposal.log_digest),
        ("change", report.change, proposal.change),
    ):
        if said_value != wanted:
            return _report(field, said_value, f"{wanted}, what the proposal has", AGAIN)
    if who in proposal.reporters and report.digest not in proposal.reports:
        value, limit = f"another one of {who}", "one report of an account on a proposal"
        return _report("report", value, limit, f"accept one that there is (fairlease policy proposals), or {AGAIN}")
    return _shape_problem(report) or _span_problem(report, proposal, policy) or _limit_problem(report)


def _shape_problem(report: SimulatedChange) -> Problem | None:
    if len(report.seeds) > MAX_SEEDS:
        return _report("seeds", f"{len(report.seeds)} seeds", f"at most {MAX_SEEDS}", "simulate with fewer seeds")
    if len(report.budgets) > MAX_BUDGETS:
        value, limit = f"{len(report.budgets)} budgets", f"at most {MAX_BUDGETS}"
        return _report("budgets", value, limit, "tell those that differ most")
    strange = next((one.budget for one in report.budgets if not is_name(one.budget)), None)
    if strange is not None:
        return _report("budgets", strange, "names of budgets, of 1-63 of a-z 0-9 -", "name those of the cell")
    return _figure_problem(report)


def _figure_problem(report: SimulatedChange) -> Problem | None:
    figures = [
        (f"{side}.{name}", getattr(getattr(report, side), name))
        for side in ("before", "after")
        for name in Figures.__struct_fields__
    ]
    figures += [("budgets", value) for one in report.budgets for value in (one.before_permille, one.after_permille)]
    for field, value in figures:
        if value is not None and not 0 <= value <= MAX_FIGURE:
            return _report(field, str(value)[:30], f"0-{MAX_FIGURE}", "send the report as it was made, by one version")
    return None


def _span_problem(report: SimulatedChange, proposal: Proposal, policy: Policy) -> Problem | None:
    """The cell's own log, so much of it; while there is less, all of it or the reference workload as long."""
    is_young = proposal.span_ms < policy.report_span_ms
    least_ms = proposal.span_ms if is_young and report.source is Source.LOG else policy.report_span_ms
    if report.source is not Source.LOG and not is_young:
        limit = f"log: the cell has more than {policy.report_span_ms} ms of its own"
        return _report("source", str(report.source), limit, "simulate the cell's own log")
    if report.span_ms < least_ms:
        limit = f"at least {least_ms} ms"
        return _report("span_ms", str(report.span_ms)[:30], limit, "simulate the whole log up to the proposal")
    return None


def _limit_problem(report: SimulatedChange) -> Problem | None:
    after = report.after
    for name in ("windows_broken", "loops", "promises_broken"):
        count = getattr(after, name)
        if count != 0:
            return _report(f"after.{name}", str(count)[:30], "0", "change the proposal until it breaks none")
    return None


def simulated(who: AccountId, report: SimulatedChange) -> ChangeSimulated:
    """The event of a report that fits."""
    return ChangeSimulated(
        proposal=report.proposal,
        report=report.digest,
        author=who,
        source=report.source,
        span_ms=report.span_ms,
        before=report.before,
        after=report.after,
        seeds=report.seeds,
        budgets=report.budgets,
    )


# an acceptance ---------------------------------------------------------------------------------------
def acceptance_problem(
    proposal: Proposal | None, who: AccountId, said: AcceptChange, policy: Policy, changed_position: int, now_ms: int
) -> Problem | None:
    """Why the proposal may not hold by this word, or by the first of the two that a forced one needs."""
    if proposal is None:
        return _unknown(said.proposal)
    if is_stale(proposal, policy, changed_position, now_ms):
        return _stale(said.proposal, proposal, policy)
    if said.is_forced:
        if proposal.forced_by == who:
            return Problem(
                field="is_forced",
                rule="10.2",
                value=who,
                limit="a second person, who may change this too",
                way_out=f"let another account say fairlease policy accept {said.proposal} --force",
            )
        return None
    if said.report not in proposal.reports and policy.change_gate == REPORTED:
        limit = f"one of {len(proposal.reports)} reports on {said.proposal}" if proposal.reports else "a report on it"
        way_out = "simulate it and name the digest that this tells, or force it, with a second person"
        return _report("report", said.report or "none", limit, way_out)
    return None


def _unknown(name: str) -> Problem:
    limit, way_out = "an open proposal", "fairlease policy proposals lists them"
    return Problem(field="proposal", rule="10.1", value=name[:80] or "none", limit=limit, way_out=way_out)


def _stale(name: str, proposal: Proposal, policy: Policy) -> Problem:
    value = f"{name} of position {proposal.position}"
    limit = f"no older than {policy.report_valid_ms} ms, and no change of policy or tree since"
    return Problem(field="proposal", rule="10.1", value=value, limit=limit, way_out=AGAIN)


def _report(field: str, value: str, limit: str, way_out: str) -> Problem:
    name = field if field == "report" else f"report.{field}"
    return Problem(field=name, rule="10.1", value=value[:80], limit=limit, way_out=way_out)
