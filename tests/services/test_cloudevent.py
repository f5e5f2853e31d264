"""Commands as CloudEvents, in both modes: what the edge reads of them, and what it says when they do not fit."""

import json
from typing import Any

import pytest

from fairlease.runtime import cloudevent, edge
from fairlease.runtime.bus import Message
from fairlease_schemas.commands import CancelJob, SubmitJob
from fairlease_schemas.envelope import Unreadable

JOB = "job-edi5652ruja532szcibj"
CANCEL = json.dumps({"job": JOB}).encode()
BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "run-7-1",
    "ce-source": "/ci/vision",
    "ce-type": "dev.fairlease.cancel-job",
    "content-type": "application/json",
}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=UTF-8"}
EVENT = {
    "specversion": "1.0",
    "id": "run-7-1",
    "source": "/ci/vision",
    "type": "dev.fairlease.cancel-job",
    "time": "2026-11-30T00:00:00Z",
    "traceparent": "00-1-1-00",
    "data": {"job": JOB},
}


def said(headers: dict[str, str], data: bytes, verb: str = "cancel-job") -> Any:  # noqa: ANN401 - what the edge reads
    return edge.read_said(Message("FL_LAB_INBOX_ann", 1, 1, f"fl.lab.cmd.ann.{verb}", data, headers))


def event(**changed: object) -> bytes:
    """The structured event with these keys changed; None leaves one out."""
    return json.dumps({key: value for key, value in {**EVENT, **changed}.items() if value is not None}).encode()


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        pytest.param({}, CANCEL, id="plain JSON"),
        pytest.param({"content-type": "application/json"}, CANCEL, id="plain JSON that says so"),
        pytest.param({"Traceparent": "00-1-1-00"}, CANCEL, id="plain JSON with headers of others"),
        pytest.param(BINARY, CANCEL, id="binary"),
        pytest.param({name.title(): value for name, value in BINARY.items()}, CANCEL, id="binary in capitals"),
        pytest.param(BINARY | {"ce-time": "yesterday", "ce-team": "x"}, CANCEL, id="binary with more attributes"),
        pytest.param(STRUCTURED, event(), id="structured"),
        pytest.param(STRUCTURED, event(datacontenttype="application/json"), id="structured with the type of its data"),
        pytest.param(STRUCTURED | {"ce-type": "x"}, event(), id="structured, whatever else headers say"),
    ],
)
def test_one_command_is_the_same_in_every_mode(headers: dict[str, str], data: bytes) -> None:
    assert said(headers, data) == CancelJob(job=JOB)


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("value", [None, ""])
def test_an_envelope_without_one_of_its_four_attributes_is_refused_by_its_name(name: str, value: str | None) -> None:
    headers = {key: text for key, text in BINARY.items() if key != f"ce-{name}"}
    refused = said(headers if value is None else {**headers, f"ce-{name}": value}, CANCEL)
    assert (refused.field, "every CloudEvent has it" in refused.error) == (f"ce-{name}", True)
    refused = said(STRUCTURED, event(**{name: value}))
    assert (refused.field, "every CloudEvent has it" in refused.error) == (name, True)


@pytest.mark.parametrize(
    ("headers", "data", "field"),
    [
        pytest.param(BINARY | {"ce-type": "dev.fairlease.hold-job"}, CANCEL, "ce-type", id="of another verb"),
        pytest.param(BINARY | {"ce-type": "cancel-job"}, CANCEL, "ce-type", id="of somebody else's type"),
        pytest.param(BINARY | {"ce-specversion": "0.3"}, CANCEL, "ce-specversion", id="of an old version"),
        pytest.param(BINARY | {"CE-Type": BINARY["ce-type"]}, CANCEL, "ce-type", id="with a header twice"),
        pytest.param(BINARY | {"content-type": "text/yaml"}, CANCEL, "content-type", id="whose body is no JSON"),
        pytest.param(STRUCTURED, event(type="dev.fairlease.hold-job"), "type", id="structured, of another verb"),
        pytest.param(STRUCTURED, event(type=7), "type", id="structured, with a number for a type"),
        pytest.param(STRUCTURED, event(data=None), "data", id="structured, of nothing"),
        pytest.param(STRUCTURED, event(data="{}"), "data", id="structured, with text for a command"),
        pytest.param(STRUCTURED, event(data_base64="e30="), "data_base64", id="structured, as base64"),
        pytest.param(STRUCTURED, event(datacontenttype="text/xml"), "datacontenttype", id="structured, of XML"),
        pytest.param(STRUCTURED, b"[]", "specversion", id="structured, and a list"),
        pytest.param(
            {"content-type": "application/cloudevents-batch+json"},
            b"[" + event() + b"]",
            "content-type",
            id="in a batch",
        ),
        pytest.param({"content-type": "application/cloudevents+avro"}, event(), "content-type", id="in Avro"),
        pytest.param(BINARY, b'{"job":"job-x","job":"' + JOB.encode() + b'"}', "", id="binary, with a key twice"),
        pytest.param(STRUCTURED, event()[:-9], "", id="cut off"),
        pytest.param(STRUCTURED, event()[:-1] + b',"id":"other"}', "", id="with a key twice"),
        pytest.param(STRUCTURED, event(data={"job": JOB, "force": True}), "", id="with a field nobody knows"),
    ],
)
def test_an_envelope_that_does_not_fit_is_unreadable(headers: dict[str, str], data: bytes, field: str) -> None:
    refused = said(headers, data)
    assert isinstance(refused, Unreadable)
    assert (refused.field, refused.size) == (field, len(data))
    assert refused.error.startswith(field)


def test_the_events_id_is_the_request_id_where_the_command_has_none() -> None:
    # rule: 1.14
    headers = BINARY | {"ce-type": "dev.fairlease.submit-job"}
    contract = b'{"kind":"Job","x":1.50}'
    read = said(headers, b'{"contract":' + contract + b"}", "submit-job")
    assert (read.request_id, bytes(read.contract)) == ("run-7-1", contract), "the contract is left as it came"
    assert said(headers, b'{"request_id":"own","contract":{}}', "submit-job").request_id == "own"
    structured = event(type="dev.fairlease.submit-job", data={"contract": {}})
    assert isinstance(read := said(STRUCTURED, structured, "submit-job"), SubmitJob)
    assert read.request_id == "run-7-1"
    assert isinstance(said({}, b'{"contract":{}}', "submit-job"), Unreadable), "plain JSON has no id but its own"


@pytest.mark.parametrize("body", [b'{"contract":{},"contract":{"kind":"Job"}}', b' {"contract":{}, "contract":{}}'])
def test_a_key_that_stands_twice_is_found_also_where_the_events_id_is_added(body: bytes) -> None:
    # rule: 1.14
    refused = said(BINARY | {"ce-type": "dev.fairlease.submit-job"}, body, "submit-job")
    assert isinstance(refused, Unreadable)
    assert "contract" in refused.error


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"{}", {"request_id": 'a"b'}),
        (b' {"job": "x"} ', {"request_id": 'a"b', "job": "x"}),
        (b"[]", []),
        (b'"{}"', "{}"),
        (b'{"request_id":null}', {"request_id": None}),
    ],
)
def test_an_id_is_added_to_what_is_an_object_and_has_none(body: bytes, read: object) -> None:
    assert json.loads(cloudevent.with_request_id(body, 'a"b')) == read


def test_reports_of_agents_have_no_envelope() -> None:
    body = b'{"attempt":"job-x-a1","token":"1-1-1"}'
    message = Message("FL_LAB_REPORTS", 1, 1, "fl.lab.report.host-1.run-started", body, {"ce-type": "nonsense"})
    assert not isinstance(edge.read_said(message), Unreadable)
