"""Why a job waits: the closed list of decisions.md 9.1, and the numbers that prove each.

A reason belongs to a *subject*: the name of a class of equal requests (`RequestClass.key`) or a
job id. It is written when it begins and when it ends, and anew when it outlived the "until" that it named (9.3).
"""

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """Every reason there is. Adding one is a change of the log's language: a new policy name."""

    BUDGET_CAP = "budget-cap"
    WINDOW_OVERSHARE = "window-overshare"
    CAPACITY = "capacity"
    FRAGMENTATION = "fragmentation"
    PROTECTED_WINDOWS = "protected-windows"
    RESERVATION = "reservation"
    HOST_MAINTENANCE = "host-maintenance"
    HOST_FAULT = "host-fault"
    CONSTRAINT_CONFLICT = "constraint-conflict"
    LANE_FULL = "lane-full"
    PROTECTED_CAP = "protected-cap"
    SAVING = "saving"
    RETRY_BACKOFF = "retry-backoff"
    RESUME_REFUSED = "resume-refused"
    THRASH_BRAKE = "thrash-brake"
    AWAITING_CHECKPOINT = "awaiting-checkpoint"
    DEPENDENCY = "dependency"
    JOB_HELD = "job-held"
    POLICY_CHANGE = "policy-change"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers and names a reason rests on; a field at its default does not apply.

    `needed_gpus`, `free_gpus` and `largest_hole_gpus` are GPUs; `largest_hole_gpus` is the largest
    number of free GPUs on one host. `level` is the budget node where standing was compared, `other` the one
    it was compared with, both with their standings. `for_ms` is a length counted from the log time of the record.
    """

    pool: str = ""
    needed_gpus: int = 0
    needed_hosts: int = 0
    free_gpus: int = 0
    whole_free_hosts: int = 0
    largest_hole_gpus: int = 0
    held_gpus: int = 0
    reserved_hosts: int = 0
    claim: str = ""
    for_ms: int = 0
    level: str = ""
    standing_permille: int = 0
    other: str = ""
    other_permille: int = 0
    limit_gpus: int = 0


class ReasonBegan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reason-began"):
    """A subject waits, from now on, for this reason; it replaces the subject's earlier reason by the same service."""

    subject: str
    code: Reason
    evidence: Evidence


class ReasonEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reason-ended"):
    """The reason is no longer true, or nothing waits for it any more (decisions.md 9.3)."""

    subject: str
    code: Reason
