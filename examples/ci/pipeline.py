"""A pipeline's step: submit a job, wait for it, annotate what went wrong, and record what the evaluation came to.

    python examples/ci/pipeline.py CONTRACT [--evaluation NAME] [--budget NAME]

CONTRACT is a job in JSON (or YAML, where PyYAML is installed). The request id is made of the pipeline's run and
attempt: a step that runs again finds its job and waits for it, and a new attempt is a new job. In GitHub Actions it
writes annotations, outputs (`job`, `state`, `exit_code`, `outcome`) and a summary; in GitLab a dotenv report. A
pipeline that is cancelled cancels its job.

It leaves with 0 when the job succeeded, with the job's own code when it failed, 200 when it was refused, 201 when it
was cancelled, 202 when it timed out, 204 when it was lost, 65 when CONTRACT is none, 69 when the cell is away, 75
without an answer, 130 when interrupted.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bus_client import Away, CellClient, messages

TERMINAL = ("succeeded", "failed", "cancelled", "timed-out")
CODES = {"succeeded": 0, "refused": 200, "cancelled": 201, "timed-out": 202}
NO_CONTRACT, LOST, INTERRUPTED = 65, 204, 130
OUTCOMES = {"succeeded": "passed", "failed": "failed"}
"""What an evaluation came to, by the state of its job; what was cancelled, lost or timed out is an error."""

LOOK_S = 5.0
MOST = 128


class Unfit(Exception):
    """What the step was given makes no job; the text says what to write."""


def request_id() -> str:
    """The same for every try of one step, another for every attempt of the pipeline; at most 128 characters."""
    env = os.environ
    try:
        if env.get("GITLAB_CI"):
            text = f"gitlab/{env['CI_PROJECT_PATH']}/{env['CI_PIPELINE_ID']}/{env['CI_JOB_ID']}"
        else:
            step = f"{env.get('GITHUB_JOB', 'job')}/{env.get('GITHUB_ACTION', 'step')}"
            text = f"github/{env['GITHUB_REPOSITORY']}/{env['GITHUB_RUN_ID']}/{env['GITHUB_RUN_ATTEMPT']}/{step}"
    except KeyError as missing:
        raise Unfit(f"{missing.args[0]} is not set: this runs as a step of GitHub Actions or GitLab CI") from None
    text = re.sub(r"[^A-Za-z0-9._:@/+=-]", "-", text)
    return text if len(text) <= MOST - len("/outcome") else f"ci/{hashlib.sha256(text.encode()).hexdigest()}"


def job_id(account: str, budget: str, request: str) -> str:
    """The id that the cell gives this job: known before anybody answers."""
    digest = hashlib.sha256("\0".join((account, budget, request)).encode()).digest()
    return "job-" + base64.b32encode(digest).decode().lower()[:20]


def contract_of(path: str, evaluation: str, budget: str) -> dict[str, Any]:
    """The contract of the file, with evaluation and budget where they are given; Unfit where there is none.

    What is in it is the cell's to judge; looked at here is only what is needed to hand it in.
    """
    contract = _read(path)
    spec = contract.get("spec") if isinstance(contract, dict) else None
    if not isinstance(contract, dict) or not isinstance(spec, dict):
        raise Unfit(f"{path} is no contract: it is an object with `spec`, an object")
    given = {key: value for key, value in (("evaluation", evaluation), ("budget", budget)) if value}
    spec = {**spec, **given}
    charged = spec.get("budget")
    if not isinstance(charged, str) or re.fullmatch("[a-z0-9-]{1,63}", charged) is None:
        raise Unfit(f"{path}: no budget to charge: write its name as spec.budget, or say --budget")
    try:
        json.dumps(spec)
    except TypeError as error:  # YAML has dates, and more
        raise Unfit(f"{path}: {error}: write such values in quotes") from None
    return {**contract, "spec": spec}


def _read(path: str) -> Any:  # noqa: ANN401 - anything that JSON or YAML may say
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise Unfit(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unfit(f"{path} is not written in UTF-8") from None
    except (ValueError, RecursionError) as error:
        no_json = str(error) or "it is too deep"
    try:
        import yaml  # noqa: PLC0415 - only for those who write YAML
    except ImportError:
        raise Unfit(f"{path} is no JSON ({no_json}), and PyYAML, which could read YAML, is not installed") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise Unfit(f"{path} is no JSON ({no_json}), and no YAML") from None


class Told:
    """What the pipeline's own system is told."""

    def __init__(self) -> None:
        self.is_github = "GITHUB_ACTIONS" in os.environ

    def error(self, title: str, text: str) -> None:
        """An annotation; in GitHub's form with what would end it escaped."""
        if self.is_github:
            print(f"::error title={_escaped(title, in_title=True)}::{_escaped(text)}", flush=True)
        else:
            print(f"error: {title}: {text}", flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def results(self, found: dict[str, str]) -> None:
        """Outputs for later steps, and a summary for people."""
        if self.is_github:
            _append("GITHUB_OUTPUT", "".join(f"{key}={_line(value)}\n" for key, value in found.items()))
            rows = "".join(f"| {key} | `{_line(value)}` |\n" for key, value in found.items() if value)
            _append("GITHUB_STEP_SUMMARY", f"### Fairlease\n\n| | |\n|---|---|\n{rows}\n")
        else:
            lines = "".join(f"FAIRLEASE_{key.upper()}={_line(value)}\n" for key, value in found.items())
            Path(os.environ.get("FAIRLEASE_DOTENV", "fairlease.env")).write_text(lines, encoding="utf-8")


def _append(variable: str, text: str) -> None:
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def _escaped(text: str, *, in_title: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_title else text


def _line(text: str) -> str:
    """One line that ends nothing and begins nothing."""
    return re.sub(r"[\x00-\x1f`|]", " ", text)


class Step:
    """One step of a pipeline, from its submission to its exit code."""

    def __init__(self, cell: CellClient, contract: dict[str, Any]) -> None:
        self.cell, self.contract = cell, contract
        self.request_id = request_id()
        self.told = Told()
        self.job = ""

    async def run(self) -> int:
        heard = await self.cell.follow(f"{self.contract['spec']['budget']}.*.*")
        self.job = job_id(self.cell.account, self.contract["spec"]["budget"], self.request_id)
        answer = await self.cell.command("submit-job", {"request_id": self.request_id, "contract": self.contract})
        if answer["outcome"] == "refused":
            for problem in answer["problems"]:
                told = ", ".join(f"{key} {problem[key]}" for key in ("value", "limit") if problem.get(key))
                self.told.error(f"{problem['field']} (rule {problem['rule']})", f"{told}: {problem['way_out']}")
            self.told.results({"job": "", "state": "refused", "exit_code": "200", "outcome": ""})
            return CODES["refused"]
        self.told.say(f"{self.job} {answer['outcome']} under request id {self.request_id}")
        end = await self._end(heard)
        code = _code(end)
        outcome = await self._record(end["state"])
        if end["state"] != "succeeded":
            self.told.error(f"{self.job} {end['state']}", f"it ended as {end.get('end') or end['state']}, code {code}")
        found = {"job": self.job, "state": end["state"], "exit_code": str(code), "outcome": outcome}
        self.told.results(found)
        return code

    async def _end(self, heard: Any) -> dict[str, Any]:  # noqa: ANN401 - nats-py's own subscription
        """How the job ended: by the feed, or asked for where the feed was silent or the job was over already."""
        state = ""
        found = await self.cell.ask("job", {"job": self.job})
        async for event in messages(heard, LOOK_S):
            if found is not None and found.get("state") != state:
                state = str(found.get("state", ""))
                self.told.say(f"{self.job} {state}")
            if found is not None and state in TERMINAL:
                return found
            if event is None:
                found = await self.cell.ask("job", {"job": self.job})
            elif event["job"] == self.job:
                found = event
        raise AssertionError("a feed has no end")

    async def _record(self, state: str) -> str:
        """Record what the evaluation came to, when the contract names one; the outcome, empty without one."""
        evaluation = self.contract["spec"].get("evaluation")
        if not evaluation:
            return ""
        outcome = OUTCOMES.get(state, "error")
        body = {"request_id": f"{self.request_id}/outcome", "evaluation": evaluation, "outcome": outcome}
        answer = await self.cell.command("record-evaluation", {**body, "job": self.job})
        for problem in answer["problems"]:
            self.told.error(f"evaluation {evaluation} (rule {problem['rule']})", problem["way_out"])
        return outcome if answer["outcome"] != "refused" else ""

    async def cancel(self) -> None:
        """The pipeline was cancelled: so is the job, also one whose answer was still on its way."""
        if self.job:
            await self.cell.command("cancel-job", {"job": self.job})
            self.told.say(f"{self.job}: cancelled with its pipeline")


def _code(end: dict[str, Any]) -> int:
    if end["state"] in CODES:
        return CODES[end["state"]]
    return int(end.get("exit_code") or 0) or LOST


async def main() -> int:
    """The step, from its command line to its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contract", metavar="CONTRACT")
    parser.add_argument("--evaluation", default="", metavar="NAME", help="the evaluation, where the contract has none")
    parser.add_argument("--budget", default="", metavar="NAME", help="the budget, where the contract has none")
    args = parser.parse_args()
    cell = CellClient.of_environment()
    try:
        step = Step(cell, contract_of(args.contract, args.evaluation, args.budget))
    except Unfit as unfit:
        Told().error("contract", str(unfit))
        return NO_CONTRACT
    try:
        await cell.open()
        return await _until_told(step)
    except Away as away:
        step.told.error("fairlease", str(away))
        return away.code
    finally:
        await cell.close()


async def _until_told(step: Step) -> int:
    """The step's code; INTERRUPTED, and the job cancelled, when the pipeline's own system ends it."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    running, ending = asyncio.ensure_future(step.run()), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        running.cancel()  # and is not waited for: `asyncio.wait_for` of Python 3.11 may lose a cancellation
        await step.cancel()
        return INTERRUPTED
    finally:
        running.cancel()
        ending.cancel()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
