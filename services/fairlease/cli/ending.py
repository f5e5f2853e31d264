"""How a job ended, in words and as an exit code, for commands that waited for it."""

from typing import Final

from fairlease.cli.exits import OK, exit_code
from fairlease.cli.output import Output, print_data, print_text, tell
from fairlease.cli.table import printable
from fairlease_schemas.explain import JobView

_ENDS: Final = {
    201: "cancelled",
    202: "timed out",
    203: "preempted and not resumable",
    204: "lost by a fault, retries used up",
    205: "could not be resumed",
    206: "could not be started",
}


def ended(raw: bytes, view: JobView, output: Output) -> int:
    """Tell how the job ended, print its view where data is wanted; the exit code."""
    code = exit_code(view.state, view.end, view.exit_code)
    words = _ENDS.get(code, "" if view.state == "succeeded" else f"exit code {code}")
    detail = view.attempts[-1].detail if view.attempts and code != OK else ""
    lost = f"{view.cancelled_for}, which it waited for, did not end well" if view.cancelled_for else ""
    told = [
        word
        for word in (words, printable(detail), lost)
        if word and word.replace("-", " ") != view.state.replace("-", " ")
    ]
    text = ": ".join((f"{view.job} {view.state}", *told))
    tell(output, text, {"kind": "JobState", "job": view.job, "state": view.state, "end": view.end, "exit_code": code})
    if output.is_data:
        print_data(output.form, raw, (view.job,))
    elif output.form == "name":
        print_text(view.job + "\n")
    return code
