"""Checkpoints: a manifest beside the files, written last, and the agent told of it.

What was written but has no manifest is no checkpoint: a run that was killed in the middle of saving
leaves the one before as the latest. The manifest is on disk, and the files before it, when
`checkpoint_done` returns; from the moment the agent's report of it arrives, what an eviction would
lose is counted anew (rule 8.2). One directory per checkpoint, or one written over: both are found.
Surprising: state of a later attempt, or of a later step, is never written over in silence, because a
process that should have been dead, or one that forgot to resume, is how weeks of training get lost.
"""

from __future__ import annotations

import os
import time

from fairlease_sdk import place

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `collections.abc` take longer to load than all the rest
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeAlias

    Place: TypeAlias = str | os.PathLike[str]

MANIFEST = "fairlease-manifest.json"
SCHEMA = "fairlease/checkpoint/v1"
_CHUNK_BYTES = 1 << 20


class NewerState(Exception):
    """There is a checkpoint of a later attempt or step here; writing over it would lose work."""


class Checkpoint:
    """A complete checkpoint: where its files lie, and its manifest."""

    __slots__ = ("attempt", "directory", "manifest", "step")

    def __init__(self, directory: str, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.step = int(manifest["step"])
        self.attempt = int(manifest["attempt"])
        self.manifest = manifest

    def path(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.directory, name)


def checkpoint_done(
    step: int,
    files: Iterable[Place] = (),
    *,
    directory: Place | None = None,
    kind: str = "custom",
    has_rng: bool = True,
    has_digests: bool = True,
    can_overwrite: bool = False,
    state: Mapping[str, str | int] | None = None,
    **more: object,
) -> None:
    """Says that the state of `step` is saved in `files`, which must be written and closed.

    `files` lie in `directory` (that of the first file, else FAIRLEASE_CHECKPOINT_DIR, else here).
    `kind` is `dcp`, `safetensors`, `pt` or `custom`; `has_rng` whether the state of the random
    numbers is in it; without `has_digests` large files are not read again. `state` says what a resumed
    run must match, in the words of the contract (`commit`, `data`, `model`, `runtime`, `rng`): before
    the next attempt starts, both are compared. `more` goes into the manifest as it is: `tokens`,
    `parallelism`, `code`, `env`, `trackers`, `resumable_on`.
    To be called once per gang, by rank 0 after all have written; other ranks say nothing.

    Raises NewerState, FileNotFoundError for a file that is not there, ValueError for one elsewhere.
    """
    if not place.is_speaker():
        return
    paths = [os.path.abspath(path) for path in files]
    where = os.path.abspath(directory) if directory is not None else _default_directory(paths)
    attempt = int(os.environ.get("FAIRLEASE_ATTEMPT_NUMBER", "0"))
    if not can_overwrite:
        _refuse_to_lose(where, int(step), attempt)
    listed = [_listed(path, where, has_digest=has_digests) for path in paths]
    manifest: dict[str, object] = {
        "schema": SCHEMA,
        "job": os.environ.get("FAIRLEASE_JOB", ""),
        "attempt": attempt,
        "step": int(step),
        "written_ms": time.time_ns() // 1_000_000,
        "world_size": int(os.environ.get("FAIRLEASE_WORLD_SIZE", "1")),
        "gpu_model": os.environ.get("FAIRLEASE_GPU_MODEL", ""),
        "state": dict(state or {}),
        "format": kind,
        "uri": os.environ.get("FAIRLEASE_CHECKPOINT_URI", ""),
        "files": listed,
        "rng": has_rng,
        **more,
        "complete": True,
    }
    data = place.encoded(manifest)
    os.makedirs(where, exist_ok=True)
    for path in paths:
        place.sync(path)
    place.write_whole(os.path.join(where, MANIFEST), data, is_durable=True)
    said = place.said_directory()
    if said:
        place.write_whole(os.path.join(said, "checkpoint.json"), data, is_durable=True)


def latest_checkpoint(directory: Place | None = None) -> Checkpoint | None:
    """The newest complete checkpoint in `directory` (else FAIRLEASE_CHECKPOINT_DIR) or in a directory below it.

    Newest by attempt, then step, then name. One whose files are missing or of another size is passed
    over. None when there is none: begin at the beginning.
    """
    root = os.fspath(directory) if directory is not None else os.environ.get(place.CHECKPOINT_DIR, "")
    if not root or not os.path.isdir(root):
        return None
    below = sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
    found = [checkpoint for path in (root, *below) if (checkpoint := _read(path)) is not None]
    return max(found, key=lambda one: (one.attempt, one.step, one.directory), default=None)


def _default_directory(paths: list[str]) -> str:
    given = os.path.dirname(paths[0]) if paths else os.environ.get(place.CHECKPOINT_DIR, "")
    return os.path.abspath(given)


def _refuse_to_lose(directory: str, step: int, attempt: int) -> None:
    there = _read(directory, is_whole=False)
    if there is not None and (there.attempt > attempt or there.step > step):
        raise NewerState(
            f"{directory} holds step {there.step} of attempt {there.attempt}, this is step {step} of attempt "
            f"{attempt}: resume from latest_checkpoint(), or say can_overwrite=True"
        )


def _listed(path: str, directory: str, *, has_digest: bool) -> dict[str, object]:
    name = os.path.relpath(path, directory)
    if name.startswith(".."):
        raise ValueError(f"{path} does not lie in {directory}: a checkpoint is one directory")
    entry: dict[str, object] = {"path": name, "size": os.stat(path).st_size}
    if has_digest:
        entry["sha256"] = _digest(path)
    return entry


def _digest(path: str) -> str:
    import hashlib  # noqa: PLC0415 - a script that saves nothing need not load it

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _read(directory: str, *, is_whole: bool = True) -> Checkpoint | None:
    """The checkpoint of a directory; None without a manifest that can be read, or when files are not as it says."""
    try:
        manifest: dict[str, Any] = place.read(os.path.join(directory, MANIFEST))
        found = Checkpoint(directory, manifest)
        is_there = manifest["complete"] is True and all(_is_as_listed(directory, entry) for entry in manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if is_there or not is_whole else None


def _is_as_listed(directory: str, entry: Mapping[str, Any]) -> bool:
    try:
        return bool(os.stat(os.path.join(directory, entry["path"])).st_size == entry["size"])
    except FileNotFoundError:
        return False
