"""Whom a message may speak of is in its subject, where the bus has looked; the body cannot say another."""

import pytest

from fairlease.runtime import edge
from fairlease.runtime.bus import Message
from fairlease_schemas.commands import CordonHost, RequestDrain
from fairlease_schemas.envelope import Unreadable
from fairlease_schemas.subjects import Subjects

SUBJECTS = Subjects("lab")


def _said(verb: str, of_host: str, body: bytes) -> object:
    return edge.read_said(Message("FL_LAB_INBOX_bot", 1, 1, SUBJECTS.command("bot", verb, of_host), body))


@pytest.mark.parametrize("of_host", ["", "host-1"])
def test_a_command_about_a_host_is_read_with_the_host_in_its_subject_and_without(of_host: str) -> None:
    assert _said("cordon-host", of_host, b'{"host":"host-1"}') == CordonHost(host="host-1")
    assert _said("request-drain", of_host, b'{"host":"host-1"}') == RequestDrain(host="host-1")


@pytest.mark.parametrize("verb", ["cordon-host", "return-host", "request-drain", "undrain-host"])
def test_a_body_that_names_another_host_than_its_subject_is_told_so(verb: str) -> None:
    """Given a bot of one host, when it lets the subject name that and the body another, then nothing is decided."""
    said = _said(verb, "host-1", b'{"host":"host-2"}')
    assert isinstance(said, Unreadable)
    assert said.error == "host: the subject is of host-1, the body of another; send one for each"


def test_a_subject_that_names_a_host_for_a_command_about_none_changes_nothing() -> None:
    assert not isinstance(_said("cancel-job", "host-1", b'{"job":"job-1"}'), Unreadable)
