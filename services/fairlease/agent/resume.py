"""Before a resume: does the newest checkpoint fit the contract, and the hosts it would go on at (8.3).

The manifest that training code left beside its checkpoint is held against what the contract says a
resumed run must match, and against this host. A difference is a refusal with both values, not a run
that diverges in silence. What one of the two does not say is not compared. Where the format can be
read at another size (`dcp`, or `resumable_on.elastic`), the number of hosts may differ.
The same reading of directories stands in fairlease_sdk, which takes nothing of ours along.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from fairlease.agent import layout
from fairlease.agent.saved import RESHARDING, Elsewhere
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.job import Mismatch

MANIFEST: Final = "fairlease-manifest.json"
_MOST_CHARS: Final = 200


class Manifest(msgspec.Struct, frozen=True):
    """What is compared of a manifest."""

    attempt: int
    step: int
    complete: bool = False
    world_size: int = 0
    gpu_model: str = ""
    format: str = ""
    state: dict[str, str | int] = {}
    resumable_on: Elsewhere = Elsewhere()


class ResumeRefused(Exception):
    """The newest checkpoint does not fit; `mismatches` holds both values of each difference."""

    def __init__(self, mismatches: tuple[Mismatch, ...]) -> None:
        self.mismatches = mismatches
        told = (f"{one.field} is {one.wanted} here and {one.found} in the checkpoint" for one in mismatches)
        super().__init__(f"resume refused: {'; '.join(told)}")


def newest(directory: Path) -> Manifest | None:
    """The newest complete checkpoint's manifest, by attempt, then step; None when there is none. OSError as usual."""
    places = [directory, *(Path(entry.path) for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))]
    found = [manifest for place in places if (manifest := _read(place / MANIFEST)) is not None and manifest.complete]
    return max(found, key=lambda one: (one.attempt, one.step), default=None)


def check(manifest: Manifest, state: Mapping[str, str | int], *, attempt: int, hosts: int, gpu_model: str) -> None:
    """Raises ResumeRefused with every difference, in the order: attempt, the contract's state, hosts, GPU model."""
    wrong = []
    if manifest.attempt > attempt:
        wrong.append(_differs("attempt", attempt, manifest.attempt))
    for field, wanted in state.items():
        if field in manifest.state and str(manifest.state[field]) != str(wanted):
            wrong.append(_differs(field, wanted, manifest.state[field]))
    can_reshard = manifest.format in RESHARDING or manifest.resumable_on.elastic
    if manifest.world_size and manifest.world_size != hosts and not can_reshard:
        wrong.append(_differs("hosts", hosts, manifest.world_size))
    if manifest.gpu_model and gpu_model not in (manifest.gpu_model, *manifest.resumable_on.gpu_types):
        wrong.append(_differs("gpu_model", gpu_model, manifest.gpu_model))
    if wrong:
        raise ResumeRefused(tuple(wrong))


def _differs(field: str, wanted: object, found: object) -> Mismatch:
    return Mismatch(field=field, wanted=str(wanted)[:_MOST_CHARS], found=str(found)[:_MOST_CHARS])


def _read(path: Path) -> Manifest | None:
    """None for what is no manifest: the SDK passes that over too."""
    try:
        return understood(layout.content(str(path)), Manifest)
    except (FileNotFoundError, layout.Spoiled, Unreadable):
        return None
