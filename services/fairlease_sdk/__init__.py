"""For training code that runs under Fairlease: see a stop coming, say what is saved, go on from there.

    import fairlease_sdk as fairlease

    saved = fairlease.latest_checkpoint()
    ...
    fairlease.progress(step, loss=loss)
    if fairlease.preempted() or step % 100 == 0:
        save(path)
        fairlease.checkpoint_done(step, [path])

All of it works by files in the attempt's directory, so there is nothing to connect to and nothing to
wait for. Outside Fairlease nothing is ever preempted, and checkpoints are noted beside their files
alone: the same script runs on a laptop. No dependency; importing it takes milliseconds.
"""

from fairlease_sdk.checkpoint import Checkpoint, NewerState, checkpoint_done, latest_checkpoint
from fairlease_sdk.notice import grace_left_ms, preempted, stop_reason
from fairlease_sdk.pace import progress

__all__ = [
    "Checkpoint",
    "NewerState",
    "checkpoint_done",
    "grace_left_ms",
    "latest_checkpoint",
    "preempted",
    "progress",
    "stop_reason",
]
