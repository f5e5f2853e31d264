"""Names of things: what they may look like, and how the derived ones are made.

An id is a prefix, a dash and a body of lower-case letters, digits and dashes, so that it can be a
token of a bus subject and a file name without escaping. The surprising choice: a job's id is not
drawn but computed from (account, budget, request id), so that the sender knows it before anyone
answers and a repeated submission names the same job.
"""

import base64
import hashlib
import re
from typing import Final

JobId = str
AttemptId = str
BudgetId = str
HostId = str
PoolId = str
AccountId = str
GpuUuid = str

NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""Ids people choose (budgets, hosts, pools, accounts): 1 to 63 of `a-z 0-9 -`, no dash at the ends."""

JOB_PATTERN: Final = r"^job-[a-z2-7]{20}$"
"""What `job_id` makes."""

REQUEST_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,127}$"
"""Request ids come from outside (pipelines, hashes, URLs): 1 to 128 printable ASCII, no spaces."""

_NAME: Final = re.compile(NAME_PATTERN)
_REQUEST_ID: Final = re.compile(REQUEST_ID_PATTERN)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_JOB_BODY_CHARS: Final = 20
_JOB_BODY_BYTES: Final = 15  # a whole number of groups of five, which make eight characters each


ROOT: Final = "/"
"""How a command names the root of the budget tree, which all others stand below and nobody is charged to."""


def is_name(text: str) -> bool:
    """Whether `text` may name a budget, host, pool or account."""
    return _NAME.fullmatch(text) is not None


def is_request_id(text: str) -> bool:
    """Whether `text` may be a request id."""
    return _REQUEST_ID.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Whether `text` is a SHA-256 in hex."""
    return _DIGEST.fullmatch(text) is not None


def job_id(account: AccountId, budget: BudgetId, request_id: str) -> JobId:
    """The id of the job that this submission makes or repeats (log.md L3).

    `job-` and the first 20 characters of the lower-case base32 of SHA-256 over the three parts,
    joined by NUL, which none of them can contain.
    """
    digest = hashlib.sha256("\0".join((account, budget, request_id)).encode()).digest()
    return "job-" + base64.b32encode(digest[:_JOB_BODY_BYTES]).decode().lower()[:_JOB_BODY_CHARS]


def attempt_id(job: JobId, number: int) -> AttemptId:
    """The id of run `number` (1, 2, 3 …) of a job."""
    return f"{job}-a{number}"


def job_of(attempt: AttemptId) -> JobId:
    """The job an attempt id belongs to; the inverse of `attempt_id`."""
    return attempt.rpartition("-a")[0]
