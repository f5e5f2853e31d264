"""Whose figures: of a budget with all below it, of a pool, of a person, of one job, or of everybody."""

import msgspec

from fairlease.core.budget import Tree
from fairlease.core.job import Job
from fairlease_schemas.ids import AccountId, BudgetId, JobId, PoolId


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted; a field at its default leaves nothing out. The tree is that of the moment of the event."""

    budget: BudgetId = ""
    pool: PoolId = ""
    account: AccountId = ""
    job: JobId = ""

    @property
    def is_everybody(self) -> bool:
        """Whether every job is counted, at least in one pool."""
        return not (self.budget or self.account or self.job)

    def has_job(self, tree: Tree, job: Job) -> bool:
        """Whether the job is counted, wherever it runs."""
        if self.is_everybody:
            return True
        if (self.account and job.account != self.account) or (self.job and job.id != self.job):
            return False
        return self.has_budget(tree, job.budget)

    def has_budget(self, tree: Tree, budget: BudgetId) -> bool:
        """Whether the budget is the one asked for, or below it."""
        return not self.budget or budget == self.budget or self.budget in tree.path(budget)

    def has_pool(self, pool: PoolId) -> bool:
        return not self.pool or pool == self.pool


EVERYBODY = Scope()
