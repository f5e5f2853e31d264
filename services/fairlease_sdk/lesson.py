"""A lesson in saving and going on, which the demo runs: a plane is fitted to noisy points, without any library.

A real optimisation with a state worth saving: weights, the random numbers and the step. It saves itself
when it is asked to stop and goes on from there, so that a resumed run learns what an undisturbed one
would. examples/train.py is the same for people who have numpy.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import fairlease_sdk as fairlease

STEPS: Final = 100_000
RATE: Final = 0.01
TRUE: Final = (2.0, -3.0, 0.5)
PAUSE_S: Final = 0.01
SAVED_EXIT: Final = 85


def learn(weights: list[float], chance: random.Random) -> float:
    """One step of stochastic gradient descent on one noisy point; the squared error before it."""
    point = (chance.uniform(-1, 1), chance.uniform(-1, 1), 1.0)
    wanted = sum(true * x for true, x in zip(TRUE, point, strict=True)) + chance.gauss(0, 0.1)
    error = sum(weight * x for weight, x in zip(weights, point, strict=True)) - wanted
    for place, x in enumerate(point):
        weights[place] -= RATE * error * x
    return error * error


def save(directory: Path, step: int, weights: list[float], chance: random.Random) -> None:
    """A checkpoint of this step, complete once its manifest is there."""
    place = directory / f"step-{step}"
    place.mkdir(parents=True, exist_ok=True)
    path = place / "state.json"
    path.write_text(json.dumps({"weights": weights, "chance": chance.getstate()}), encoding="utf-8")
    fairlease.checkpoint_done(step, [path])


def resumed(directory: Path) -> tuple[int, list[float], random.Random]:
    """The newest checkpoint's step, weights and random numbers; the beginning without one."""
    chance, saved = random.Random(1), fairlease.latest_checkpoint(directory)
    if saved is None:
        return 0, [0.0, 0.0, 0.0], chance
    state: dict[str, Any] = json.loads(Path(saved.path("state.json")).read_text(encoding="utf-8"))
    version, numbers, gauss = state["chance"]
    chance.setstate((version, tuple(numbers), gauss))
    return saved.step, list(state["weights"]), chance


def main() -> int:
    """0 when all steps are done, 85 when it was asked to stop before and saved itself."""
    directory = Path(os.environ["FAIRLEASE_CHECKPOINT_DIR"])
    step, weights, chance = resumed(directory)
    print(f"begins at step {step}", flush=True)
    while step < STEPS:
        loss = learn(weights, chance)
        step += 1
        fairlease.progress(step, STEPS, loss=loss)
        time.sleep(PAUSE_S)
        if fairlease.preempted():
            save(directory, step, weights, chance)
            print(f"saved step {step}: {', '.join(f'{weight:.2f}' for weight in weights)}", flush=True)
            return SAVED_EXIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
