"""One sink for all that is logged: one line each, with its job's trace, and never a secret."""

import errno
import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from fairlease.runtime import telemetry
from fairlease.runtime.redaction import MASK, secrets_in, without
from fairlease.runtime.secret import Secret
from fairlease.runtime.settings import Settings
from fairlease.runtime.spans import trace_id

JOB = "job-" + "a2b3c4d5e6" * 2
ENV = {
    "WANDB_API_KEY": "canary-of-wandb",
    "DB_PASSWORD": "canary of the db",
    "FAIRLEASE_URL": "nats://ann:canary-in-url@bus:4222",
    "PROXY": "http://canary-alone@proxy:3128",
    "AWS_SESSION_TOKEN": "canary-of-aws",
    "SHORT_TOKEN": "abc",
    "PATH": "/bin",
    "TOKENIZER": "gpt2-large",
}
KNOWN = ("canary of the db", "canary-of-wandb", "canary-alone", "canary-in-url", "canary-of-aws")


class Sink:
    """What a process with these variables has logged."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    for name, value in ENV.items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    sink = Sink()
    telemetry.configure("ranker", "b", stream=sink.stream)
    yield sink
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


log = logging.getLogger("fairlease.x")


def test_a_log_line_is_one_line_whatever_it_quotes(sink: Sink) -> None:
    log.warning("job %s", 'a"\n{"level": "error"}\x1b[31m', extra={"position": 42})
    (told,) = sink.lines
    assert list(told) == ["at", "level", "service", "replica", "text", "position"]
    assert (told["service"], told["replica"], told["level"], told["position"]) == ("ranker", "b", "warning", 42)
    assert told["text"] == 'job a"\\n{"level": "error"}\\x1b[31m', "also for who decodes it"


def test_no_field_and_no_traceback_holds_what_a_terminal_obeys(sink: Sink) -> None:
    error = ValueError("first\nsecond \x1b[31m \u202e")
    log.error("failed", exc_info=error, extra={"name_of_it": "a\r\nb", "deep": {"more": ["\x07"]}})
    (line,) = sink.lines
    told = [line["text"], line["name_of_it"], line["deep"], *line["exception"]]
    assert all(text.isprintable() for text in told)
    assert line["exception"][-2:] == ["ValueError: first", "second \\x1b[31m \\u202e"]


def test_what_is_bound_to_a_turn_is_in_its_lines_and_what_a_line_says_goes_before(sink: Sink) -> None:
    with bound_contextvars(position=7):
        log.info("one")
        log.info("two", extra={"position": 8})
    log.info("three")
    assert [line.get("position") for line in sink.lines] == [7, 8, None]


def test_a_line_about_a_job_or_its_attempt_has_the_jobs_trace(sink: Sink) -> None:
    log.info("%s-a2: its end cannot be written", JOB)
    log.info("nothing of job-short")
    first, second = sink.lines
    assert (first["job"], first["trace_id"]) == (JOB, trace_id(JOB))
    assert "job" not in second


def test_what_the_environment_keeps_secret_is_known_by_its_value() -> None:
    assert secrets_in(ENV) == tuple(Secret(one) for one in sorted(KNOWN, key=lambda one: (-len(one), one)))


@pytest.mark.parametrize("secret", KNOWN)
def test_a_secret_of_the_environment_is_in_no_line_by_whatever_way_it_comes(sink: Sink, secret: str) -> None:
    log.warning("the store said %s again", secret)
    log.warning("the store said " + secret)  # noqa: G003 - as a library may
    log.warning("with fields", extra={"said": secret, "more": {"deep": [secret]}})
    try:
        int(f"could not log in with {secret}")
    except ValueError:
        log.exception("failed")
    assert len(sink.lines) == 4
    assert secret not in sink.stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("password=canary-1", id="by its name"),
        pytest.param("nats://ann:canary-1@bus:4222", id="in an address"),
        pytest.param("Authorization: Bearer canary-12345678", id="in a header"),
    ],
)
def test_a_secret_with_a_form_is_in_no_line_though_nobody_knows_it(sink: Sink, text: str) -> None:
    log.warning("said: %s", text)
    log.warning("said", extra={"text_of_it": text})
    assert "canary" not in sink.stream.getvalue()


@pytest.mark.parametrize("hook", ["process", "thread"])
def test_what_nobody_caught_goes_through_the_same_sink(sink: Sink, hook: str) -> None:
    error = ValueError("could not log in with canary-of-wandb")
    if hook == "process":
        sys.excepthook(ValueError, error, None)
    else:
        threading.excepthook(threading.ExceptHookArgs((ValueError, error, None, threading.current_thread())))
    (line,) = sink.lines
    assert (line["level"], line["text"]) == ("error", "nobody caught this")
    assert line["exception"] == [f"ValueError: could not log in with {MASK}"]


def test_a_field_is_judged_with_its_name_and_numbers_stay(sink: Sink) -> None:
    log.info("in", extra={"password": "canary-1", "position": 7, "token": 4096, "is_ready": True})
    (line,) = sink.lines
    assert (line["password"], line["position"], line["token"], line["is_ready"]) == (MASK, 7, 4096, True)


def test_a_secret_behind_the_cut_of_a_long_text_is_not_half_told(sink: Sink) -> None:
    log.info("%s password=canary-1 %s", "x" * 1_990, "y" * 40_000)
    (line,) = sink.lines
    assert "canary" not in line["text"]
    assert len(line["text"]) == 2_000


def test_a_wrong_format_is_told_and_ends_nothing() -> None:
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "%d of %s", ("one",), None)
    line = json.loads(telemetry.line_formatter("ranker", "b").format(record))
    assert line["text"] == "%d of %s (TypeError in its format)"


class Sour:
    """What cannot be told, and tells a secret of it."""

    def __str__(self) -> str:
        raise RuntimeError("canary-of-wandb")


def test_what_cannot_be_told_is_said_so_and_not_by_loggings_own_words() -> None:
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "the store said %s", (Sour(),), None)
    record.answer = Sour()
    line = json.loads(telemetry.line_formatter("ranker", "b").format(record))
    assert line["text"] == "the store said %s (RuntimeError in its format)"
    assert line["answer"] == "Sour that cannot be told (RuntimeError)"


@pytest.mark.parametrize("failures", [1, 2])
def test_a_line_that_finds_no_room_is_not_told_past_the_sink(
    sink: Sink, capsys: pytest.CaptureFixture[str], failures: int
) -> None:
    """A full disk may take a small line after a large one, and `logging` would print what it could not write."""
    errors = [OSError(errno.ENOSPC, "No space left on device")] * failures
    write = sink.stream.write

    def full(text: str) -> int:
        if errors:
            raise errors.pop()
        return write(text)

    sink.stream.write = full  # type: ignore[method-assign]  # as a disk would
    log.error("the store said password=%s", "canary-of-wandb")
    log.warning("and goes on")
    told = [(line["level"], line["text"]) for line in sink.lines]
    lost = [("error", "a line of the log is lost (OSError)")] * (failures == 1)
    assert told == [*lost, ("warning", "and goes on")]
    assert capsys.readouterr() == ("", "")


def test_who_logs_by_structlog_comes_the_same_way(sink: Sink, capsys: pytest.CaptureFixture[str]) -> None:
    structlog.get_logger("x").warning("with canary-of-wandb\n", job=JOB, password="canary-1")
    (line,) = sink.lines
    assert (line["text"], line["password"], line["trace_id"]) == (f"with {MASK}\\n", MASK, trace_id(JOB))
    assert (line["level"], line["service"]) == ("warning", "ranker")
    assert capsys.readouterr() == ("", "")


def test_settings_do_not_show_the_password_of_the_bus() -> None:
    shown = repr(Settings(state_dir=Path("/x"), url="nats://ann:canary-in-url@bus:4222", cell="lab"))
    assert "canary" not in shown
    assert "cell='lab'" in shown


def test_text_without_known_secrets_is_redacted_as_ever() -> None:
    assert (
        without("a canary-alone in a password=canary-1", (Secret("canary-alone"),)) == f"a {MASK} in a password={MASK}"
    )
