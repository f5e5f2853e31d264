"""A job that is slow to save: rank 0 saves step 25 at once and step 50 in SAVES_S seconds, then trains on.

Every rank says in the file TOLD what it does. A later attempt says where it goes on, and is done.
"""

import os
import sys
import time
from pathlib import Path

import fairlease_sdk as fairlease

PLACE = Path(os.environ["FAIRLEASE_CHECKPOINT_DIR"])


def say(what: str) -> None:
    with Path(os.environ["TOLD"]).open("a") as told:
        told.write(f"{os.environ['FAIRLEASE_ATTEMPT']} {os.environ['FAIRLEASE_RANK']} {what}\n")


def save(step: int, takes_s: float) -> None:
    """Half the state, a while, the other half; complete with its manifest."""
    say(f"saving {step}")
    directory = PLACE / f"step-{step}"
    directory.mkdir()
    (directory / "weights").write_text(f"weights of step {step}")
    time.sleep(takes_s)
    (directory / "optimizer").write_text(f"optimizer of step {step}")
    fairlease.checkpoint_done(step, [directory / "weights", directory / "optimizer"])
    say(f"saved {step}")


def main() -> int:
    saved = fairlease.latest_checkpoint()
    say(f"begins {saved.step if saved else 0}")
    if saved is not None:
        return 0
    if os.environ["FAIRLEASE_RANK"] == "0":
        save(25, 0)
        save(50, float(os.environ["SAVES_S"]))
    while not fairlease.preempted():
        time.sleep(0.02)
    return 85


if __name__ == "__main__":
    sys.exit(main())
