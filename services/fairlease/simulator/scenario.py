"""The reference workload as its file says it: cluster, demand, budgets, classes. lab-1024.toml is the workload."""

import hashlib
from importlib import resources
from typing import Final

import msgspec

WORKLOAD_FILE: Final = "lab-1024.toml"


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts leave in id order, so many at once, from that day on."""

    from_day: int
    hosts_at_once: int
    notice_h: int
    needs_h: int


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machines, and what befalls them."""

    pool: str
    hosts: int
    gpus_per_host: int
    hosts_per_block: int
    host_mtbf_days: int
    host_repair_h: int
    maintenance: Maintenance


class Time(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured, and what comes before."""

    warm_up_days: int
    measured_days: int


class Demand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The closed loop: how much a project keeps outstanding."""

    outstanding_of_share: float
    idle_outstanding_of_share: float
    think_time_mean_min: int
    gang_cap_of_share: int
    people_per_project: int


class Organisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A budget with its projects; weights among siblings."""

    weight: int
    projects: dict[str, int]


class Duration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long useful work takes: the distribution, and what it is clamped to."""

    kind: str
    mean_s: int = 0
    median_h: float = 0
    sigma: float = 0
    min_s: int = 0
    max_s: int = 0
    max_h: int = 0


class JobClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the jobs of a class are drawn from."""

    gpus: tuple[int, ...]
    window_min: tuple[int, ...]
    resumable: bool
    duration: Duration
    startup_s: int
    count_permille: int = 0
    timeout_min: int = 0
    timeout_h: int = 0
    lane: str = ""
    checkpoint_min: int = 0
    saves_on_notice_permille: int = 0


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long an eviction holds the GPUs."""

    save_on_notice_s: int
    stop_s: int


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people say of a job where a policy asks them."""

    high_permille: int
    normal_permille: int
    low_permille: int
    preemptible: bool


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    cluster: Cluster
    time: Time
    demand: Demand
    budgets: dict[str, Organisation]
    classes: dict[str, JobClass] = msgspec.field(name="class")
    stop: Stop
    priority: Priority


def lab_1024() -> Scenario:
    """The workload that is shipped."""
    return msgspec.toml.decode(workload_bytes(), type=Scenario)


def workload_bytes() -> bytes:
    """The shipped file as it is."""
    return resources.files("fairlease.simulator").joinpath(WORKLOAD_FILE).read_bytes()


def workload_digest() -> str:
    """The SHA-256 of the shipped file, in hex: whoever compares two reports compares this first."""
    return hashlib.sha256(workload_bytes()).hexdigest()
