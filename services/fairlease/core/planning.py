"""What would happen to a contract that is not submitted yet: admission's rules, then the outlook."""

from fairlease.core import explain
from fairlease.core.contract_rules import check, effective_request
from fairlease.core.dues import NEVER_MS
from fairlease.core.job import Job
from fairlease.core.world import World
from fairlease_schemas.envelope import Address
from fairlease_schemas.explain import PlanView
from fairlease_schemas.ids import AccountId, BudgetId
from fairlease_schemas.job import Request

PLANNED = "job-planned"


def plan(world: World, account: AccountId, budget: BudgetId, asked: Request) -> PlanView:
    """The plan for this request as if it were admitted now, behind everybody who waits, and tried next."""
    policy = world.policy
    if policy is None:
        return explain.plan(world, _job(account, budget, asked), (), ())
    request = effective_request(world, policy, asked)
    problems, advice = check(world, policy, account, budget, request, world.log_time_ms)
    return explain.plan(world, _job(account, budget, request), problems, advice)


def _job(account: AccountId, budget: BudgetId, request: Request) -> Job:
    return Job(
        id=PLANNED,
        account=account,
        budget=budget,
        request_id="plan",
        digest="",
        request=request,
        admitted=Address(0, NEVER_MS, 0),
        submitted_ms=0,
    )
