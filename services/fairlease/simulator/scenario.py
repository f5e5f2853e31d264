"""The reference workload as its file says it: cluster, demand, budgets, classes. lab-1024.toml is the workload."""

import hashlib
from importlib import resources
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

WORKLOAD_FILE: Final = "lab-1024.toml"
LIMITS_FILE: Final = "lab-1024-must.toml"
IDLE: Final = "idle"
"""The class of work without a window, which is kept outstanding by a figure of its own."""

_Name = Annotated[str, Meta(pattern="^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$")]
_Count = Annotated[int, Meta(ge=1, le=10_000)]
_Weight = Annotated[int, Meta(ge=1, le=1_000_000)]
_Permille = Annotated[int, Meta(ge=0, le=1_000)]
_Days = Annotated[int, Meta(ge=0, le=3_660)]
_Hours = Annotated[int, Meta(ge=0, le=87_840)]
_Minutes = Annotated[int, Meta(ge=0, le=5_270_400)]
_Seconds = Annotated[int, Meta(ge=0, le=316_224_000)]
_Ratio = Annotated[float, Meta(ge=0, le=1_000)]


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts leave in id order, so many at once, from that day on."""

    from_day: _Days
    hosts_at_once: Annotated[int, Meta(ge=0, le=10_000)]
    notice_h: _Hours
    needs_h: _Hours


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machines, and what befalls them."""

    pool: _Name
    hosts: _Count
    gpus_per_host: Annotated[int, Meta(ge=1, le=16)]
    hosts_per_block: _Count
    host_mtbf_days: Annotated[int, Meta(ge=1, le=1_000_000)]
    host_repair_h: _Hours
    maintenance: Maintenance


class Time(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured, and what comes before."""

    warm_up_days: _Days
    measured_days: Annotated[int, Meta(ge=1, le=3_660)]


class Demand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The closed loop: how much a project keeps outstanding."""

    outstanding_of_share: _Ratio
    idle_outstanding_of_share: _Ratio
    think_time_mean_min: _Minutes
    gang_cap_of_share: _Count
    people_per_project: _Count


class Organisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A budget with its projects; weights among siblings."""

    weight: _Weight
    projects: dict[_Name, _Weight]


class Duration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long useful work takes: the distribution, and what it is clamped to."""

    kind: Literal["exponential", "lognormal"]
    mean_s: _Seconds = 0
    median_h: Annotated[float, Meta(ge=0, le=87_840)] = 0
    sigma: Annotated[float, Meta(ge=0, le=10)] = 0
    min_s: _Seconds = 0
    max_s: _Seconds = 0
    max_h: _Hours = 0


class JobClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the jobs of a class are drawn from."""

    gpus: tuple[_Count, ...]
    window_min: tuple[_Minutes, ...]
    resumable: bool
    duration: Duration
    startup_s: _Seconds
    count_permille: _Permille = 0
    timeout_min: _Minutes = 0
    timeout_h: _Hours = 0
    lane: Literal["", "debug"] = ""
    checkpoint_min: _Minutes = 0
    saves_on_notice_permille: _Permille = 0


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long an eviction holds the GPUs."""

    save_on_notice_s: _Seconds
    stop_s: _Seconds


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people say of a job where a policy asks them."""

    high_permille: _Permille
    normal_permille: _Permille
    low_permille: _Permille
    preemptible: bool


class Reweighing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A budget has another weight from that day on, counted from 0, the warm-up included."""

    at_day: _Ratio
    budget: _Name
    weight: _Weight


Strategy = Literal["delays", "splits", "resubmits", "long-windows", "short-windows", "debug-lane", "squats"]
"""What the people of a project do to get more than they are due; gaming.py says each."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. `change` are other weights in mid-run, `game` projects whose people do not play fair."""

    cluster: Cluster
    time: Time
    demand: Demand
    budgets: dict[_Name, Organisation]
    classes: dict[_Name, JobClass] = msgspec.field(name="class")
    stop: Stop
    priority: Priority
    change: tuple[Reweighing, ...] = ()
    game: dict[_Name, Strategy] = {}


def lab_1024() -> Scenario:
    """The workload that is shipped."""
    return msgspec.toml.decode(workload_bytes(), type=Scenario)


def workload_bytes() -> bytes:
    """The shipped file as it is."""
    return resources.files("fairlease.simulator").joinpath(WORKLOAD_FILE).read_bytes()


def workload_digest() -> str:
    """The SHA-256 of the shipped file, in hex: whoever compares two reports compares this first."""
    return hashlib.sha256(workload_bytes()).hexdigest()


def reweighed(scenario: Scenario, change: Reweighing) -> Scenario:
    """The workload with the budget's other weight, from the beginning."""
    replace = msgspec.structs.replace
    budgets = {
        name: replace(
            org,
            weight=change.weight if name == change.budget else org.weight,
            projects={
                project: change.weight if project == change.budget else weight
                for project, weight in org.projects.items()
            },
        )
        for name, org in scenario.budgets.items()
    }
    return replace(scenario, budgets=budgets)


def must() -> str:
    """What the services' own policy has to reach on the reference workload, as `compare --must` reads it."""
    return resources.files("fairlease.simulator").joinpath(LIMITS_FILE).read_text(encoding="utf-8")


def unserviced(cluster: Cluster) -> Cluster:
    """The same machines, whose faults and repairs are all that befalls them."""
    return msgspec.structs.replace(cluster, maintenance=Maintenance(from_day=0, hosts_at_once=0, notice_h=0, needs_h=0))
