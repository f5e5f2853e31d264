"""A small real training run: a two-layer network learns a spiral, saves itself, and goes on where it was.

    python examples/train.py [--steps 3000] [--checkpoints DIR] [--out FILE]

Under Fairlease it sees a stop coming and saves before it leaves; anywhere else it saves every so many
steps. Resumed or not, it ends with the same numbers to the last bit: the state of the random numbers
is part of a checkpoint, like weights and momentum, and the arithmetic is kept to one thread.
Needs numpy, and fairlease_sdk, which needs nothing.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

for _threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"  # the order of a sum, and so its last bit, must not depend on the machine's cores

import numpy as np  # noqa: E402 - it reads the environment when it is loaded

import fairlease_sdk as fairlease  # noqa: E402 - as above, imports stand together

CLASSES, POINTS, HIDDEN, BATCH = 3, 200, 32, 64
RATE, MOMENTUM = 0.05, 0.9
KEPT = "state.npz"

Arrays = dict[str, np.ndarray]


def spiral(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on three arms and the arm of each: the same for a seed, and no part of a checkpoint."""
    chance = np.random.default_rng(seed)
    radius = np.tile(np.linspace(0.05, 1, POINTS), CLASSES)
    arm = np.repeat(np.arange(CLASSES), POINTS)
    angle = 4 * (radius + arm * (np.pi / 6)) + chance.normal(0, 0.15, CLASSES * POINTS)
    return np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1), arm


class Training:
    """Weights, momentum, random numbers and the step they belong to: all that a checkpoint must hold."""

    def __init__(self, seed: int) -> None:
        self.step = 0
        self.chance = np.random.default_rng(seed + 1)
        self.weights: Arrays = {
            "w1": self.chance.normal(0, 0.5, (2, HIDDEN)),
            "b1": np.zeros(HIDDEN),
            "w2": self.chance.normal(0, 0.5, (HIDDEN, CLASSES)),
            "b2": np.zeros(CLASSES),
        }
        self.momentum: Arrays = {name: np.zeros_like(value) for name, value in self.weights.items()}

    def learn(self, points: np.ndarray, arms: np.ndarray) -> float:
        """One step of stochastic gradient descent with momentum; the loss before it."""
        batch = self.chance.integers(0, len(points), BATCH)
        x, wanted = points[batch], np.eye(CLASSES)[arms[batch]]
        hidden, likely = self._forward(x)
        loss = float(-(wanted * np.log(likely + 1e-12)).sum(axis=1).mean())
        wrong = (likely - wanted) / BATCH
        back = wrong @ self.weights["w2"].T * (1 - hidden**2)
        gradient = {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ wrong, "b2": wrong.sum(axis=0)}
        for name, value in gradient.items():
            self.momentum[name] = MOMENTUM * self.momentum[name] - RATE * value
            self.weights[name] = self.weights[name] + self.momentum[name]
        self.step += 1
        return loss

    def accuracy(self, points: np.ndarray, arms: np.ndarray) -> float:
        """The part of all points that it puts on the right arm."""
        return float((self._forward(points)[1].argmax(axis=1) == arms).mean())

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.tanh(x @ self.weights["w1"] + self.weights["b1"])
        scores = hidden @ self.weights["w2"] + self.weights["b2"]
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, raised / raised.sum(axis=1, keepdims=True)

    def save(self, root: Path) -> None:
        """A directory per checkpoint, so that one that is cut short leaves the one before whole."""
        place = root / f"step-{self.step:08d}"
        place.mkdir(parents=True, exist_ok=True)
        held = {f"weights.{name}": value for name, value in self.weights.items()}
        held |= {f"momentum.{name}": value for name, value in self.momentum.items()}
        drawn = self.chance.bit_generator.state["state"]
        held["chance"] = np.frombuffer(
            drawn["state"].to_bytes(16, "little") + drawn["inc"].to_bytes(16, "little"), "u1"
        )
        np.savez(place / KEPT, **held)
        fairlease.checkpoint_done(self.step, [place / KEPT])
        for old in sorted(root.glob("step-*"))[:-2]:
            shutil.rmtree(old)

    def resume(self, saved: fairlease.Checkpoint) -> None:
        """Goes on from a checkpoint, with the very numbers that would have been drawn next."""
        with np.load(saved.path(KEPT)) as held:
            self.weights = {name: held[f"weights.{name}"] for name in self.weights}
            self.momentum = {name: held[f"momentum.{name}"] for name in self.momentum}
            drawn = held["chance"].tobytes()
        state = self.chance.bit_generator.state
        state["state"] = {"state": int.from_bytes(drawn[:16], "little"), "inc": int.from_bytes(drawn[16:], "little")}
        self.chance.bit_generator.state = state
        self.step = saved.step

    def result(self) -> bytes:
        """The weights as bytes, in a fixed order: what two runs are compared by."""
        return b"".join(self.weights[name].astype("<f8").tobytes() for name in sorted(self.weights))


def main() -> int:
    """0 when all steps are done; 85, saved and to be continued, when it was asked to stop before."""
    asked = argparse.ArgumentParser(description="trains a small network; saves, stops and resumes")
    asked.add_argument("--steps", type=int, default=3_000)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--every", type=int, default=200, help="steps between checkpoints")
    asked.add_argument(
        "--pause-ms", type=int, default=0, help="sleep after each step, to make a long job of a small one"
    )
    asked.add_argument("--checkpoints", default=os.environ.get("FAIRLEASE_CHECKPOINT_DIR", "checkpoints"))
    asked.add_argument("--out", default="weights.bin")
    said = asked.parse_args()
    root = Path(said.checkpoints)
    points, arms = spiral(said.seed)
    training = Training(said.seed)
    saved = fairlease.latest_checkpoint(root)
    if saved is not None:
        training.resume(saved)
    print(f"begins at step {training.step} of {said.steps}", flush=True)
    while training.step < said.steps:
        loss = training.learn(points, arms)
        fairlease.progress(training.step, said.steps, loss=loss)
        if said.pause_ms:
            time.sleep(said.pause_ms / 1_000)
        is_asked_to_stop = fairlease.preempted()
        if is_asked_to_stop or training.step % said.every == 0:
            training.save(root)
        if is_asked_to_stop and training.step < said.steps:
            print(f"saved step {training.step} and leaves: {fairlease.stop_reason()}", flush=True)
            return 85
    Path(said.out).write_bytes(training.result())
    print(f"ends at step {training.step}: {training.accuracy(points, arms):.3f} of the points are right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
