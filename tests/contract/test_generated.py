"""What others build on is what the code says: schemas, catalogue and contract reference, and their examples."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from fairlease.cli.document import read_document
from fairlease_schemas import codec, generate
from fairlease_schemas.commands import (
    AcceptChange,
    CancelJob,
    ChangeBudget,
    ChangeMember,
    ChangePolicy,
    CordonHost,
    HoldJob,
    RecordEvaluation,
    ReleaseJob,
    ReportChange,
    ReturnHost,
)
from fairlease_schemas.contract import read_contract
from fairlease_schemas.envelope import Answer, Event, Misshapen, TimerFired, Unreadable
from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import After, End
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import CheckpointDone
from tests.dsl.cell import Cell
from tests.dsl.proposals import proposed, reported
from tests.golden.record import gangs_begin_together, hosts_come_and_go

HOUR_MS = 3_600_000
PAGES = generate.generated()
SCHEMAS = {name: json.loads(text) for name, text in PAGES.items() if name.endswith(".json")}
WRONG = {
    "budget": "A B",
    "hosts": 0,
    "gpus_per_host": 17,
    "pools": [],
    "min_runtime": 30,
    "timeout": "1 hour",
    "on_timeout": "wait",
    "resumable": "yes",
    "checkpoint": {"grace": "soon"},
    "max_retries": -1,
    "lane": "fast",
    "command": "python train.py",
    "env": {"1X": "a"},
    "cpu_per_host": 0,
    "memory_per_host": "64",
    "disk_per_host": 64,
    "constraints": {"gpu_model": "H100"},
    "state": {"world_size": 0},
    "array": {"count": 0},
    "after": [{"job": "job-1"}],
    "evaluation": "A B",
    "labels": {"A": "x"},
    "image": "a b",
    "secrets": {"A": "hunter2"},
    "source": {"commit": "main"},
    "start_limit": "soon",
    "terminal": "please",
}


# files -------------------------------------------------------------------------------------------------
def test_the_generated_files_are_what_the_code_says() -> None:
    assert generate.stale(generate.ROOT, PAGES) == [], f"run `{generate.COMMAND}`"


def test_they_are_the_same_under_any_hash_seed() -> None:
    script = "import hashlib; from fairlease_schemas.generate import generated as g; "
    script += "print(hashlib.sha256(repr(g()).encode()).hexdigest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(generate.ROOT / "schemas")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_stale_file_is_named_with_the_command_that_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    (tmp_path / "docs/events.md").write_text("old\n")
    (tmp_path / "schemas/json/stray.json").touch()
    capsys.readouterr()
    assert generate.main(["--check"], tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["docs/events.md", "schemas/json/stray.json"]
    assert all(f"run `{generate.COMMAND}`" in line for line in lines)
    assert generate.main([], tmp_path) == 0
    assert generate.stale(tmp_path, PAGES) == []


def test_an_installed_package_says_where_it_can_be_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as leaving:
        generate.main(["--check"], tmp_path)
    assert leaving.value.code == 2


# the catalogue -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("entry", generate.entries(), ids=lambda entry: generate.tag_of(entry.cls))
def test_every_example_is_a_real_event_under_its_own_heading(entry: generate.Entry) -> None:
    line = generate.canonical_line(entry.example)
    section = PAGES["docs/events.md"].split(f"### {generate.tag_of(entry.cls)}\n")[1].split("\n### ")[0]
    assert f"```json\n{line}\n```" in section
    assert generate.REPLAYS in section
    assert accepts(SCHEMAS["schemas/json/events.schema.json"], json.loads(line))


def test_the_example_record_is_sealed_and_canonical() -> None:
    data = generate.example_record()
    assert data.decode() in PAGES["docs/events.md"]
    assert codec.sealed(codec.read_record(data))[1] == data
    assert accepts(SCHEMAS["schemas/json/record.schema.json"], json.loads(data))


def eventful() -> Cell:
    """A story in which every event happens at least once."""
    cell = Cell().hosts(2, gpus=2).budgets(a=1, b=1)
    cell.say(CordonHost(host="host-001"), "carol")
    cell.say(ReturnHost(host="host-001"), "carol")
    cell.say(ReturnHost(host="host-none"), "carol")
    cell.say(ChangeBudget(budget="a", weight=2), "lead")
    cell.say(ChangePolicy(name="other", policy=Policy(step_limit_ms=2_000)), "lead")
    idle = cell.submit("idle", min_runtime_ms=0, gpus_per_host=2)
    other = cell.submit("idle-2", min_runtime_ms=0, gpus_per_host=2)
    cell.start(idle).start(other)
    gang = cell.submit("gang", hosts=2, gpus_per_host=2)
    cell.say(CancelJob(job=gang), "ann")
    cell.gone(idle, End.CANCELLED, None).gone(other, End.CANCELLED, None)
    for job in (idle, other):
        cell.say(CancelJob(job=job), "ann")
        cell.gone(job, End.CANCELLED, None)
    retried = cell.submit("retried", max_retries=1)
    cell.start(retried).gone(retried, End.FAILED, 1).at(HOUR_MS).gone(retried)
    late = cell.submit("late", "b", timeout_ms=HOUR_MS)
    cell.at(3 * HOUR_MS).gone(late, End.CANCELLED, None)
    cell.gone(cell.submit("wrong"), End.FAILED, 3)
    misshapen = Misshapen(budget="a", request_id="x", problems=())
    unreadable = Unreadable(size=9, sha256="ab" * 32, error="no JSON")
    cell.step("admission", (Answer(stream="I", seq=1, time_ms=cell.now_ms, who="ann", said=misshapen),))
    cell.step("health", (Answer(stream="I", seq=2, time_ms=cell.now_ms, who="ann", said=unreadable),))
    cell.submit("unplaced", settle=False)
    cell.step("ranker")
    fired = TimerFired(due_ms=cell.now_ms + 2_000)
    cell.step("ranker", (Answer(stream="T", seq=1, time_ms=fired.due_ms, who="ranker", said=fired),))
    return cell


def judged() -> Cell:
    """Proposals of changes: one that is replaced, one that is reported on, one that two force."""
    cell = Cell().budgets(a=1)
    cell.say(ChangeMember(budget="a", account="second", role="lead"), "lead")
    proposed(cell, ChangeBudget(budget="a", weight=2))
    report = reported(proposed(cell, ChangeBudget(budget="a", weight=3)))
    cell.say(ReportChange(report=report), "lead")
    for who in ("lead", "second"):
        cell.say(AcceptChange(proposal="wider", is_forced=True), who)
    return cell


def waiting() -> Cell:
    """What waiting adds: a promise made and given up, a checkpoint, a job held, and one that follows another."""
    cell = Cell().hosts(1).budgets(a=1, b=1)
    first = cell.submit("first", gpus_per_host=8, min_runtime_ms=HOUR_MS, timeout_ms=24 * HOUR_MS)
    claim = cell.submit("claim", "b", gpus_per_host=8, timeout_ms=24 * HOUR_MS)
    token = str(cell.world.jobs[first].attempts[0].token)
    saved = CheckpointDone(attempt=attempt_id(first, 1), token=token)
    cell.step("admission", (cell.answer(saved, "host-001", "FL_LAB_REPORTS"),))
    cell.say(HoldJob(job=claim))
    cell.say(ReleaseJob(job=claim))
    cell.step("admission", tuple(cell.answer(CancelJob(job="job-none")) for _ in range(9)))
    cell.submit("judged", evaluation="mmlu")
    cell.say(RecordEvaluation(request_id="e1", evaluation="mmlu", outcome=Outcome.PASSED))
    cell.submit("next", after=(After(job=first, when="any"),))
    cell.gone(first)
    return cell


def test_every_event_is_written_by_the_services_that_the_catalogue_names() -> None:
    named = {entry.cls: set(entry.by) for entry in generate.entries()}
    seen = set()
    stories = (eventful(), waiting(), judged(), hosts_come_and_go(), gangs_begin_together())
    for data in (data for story in stories for data in story.records):
        record = codec.read_record(data)
        for event in record.events:
            assert record.by in named[type(event)], f"{record.by} writes {event}"
            seen.add(type(event))
    assert seen == set(get_args(Event))


# the contract ----------------------------------------------------------------------------------------------
def yaml_blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", PAGES["docs/contract.md"], re.DOTALL)


def test_the_examples_of_the_reference_are_contracts_as_a_file_would_say_them() -> None:
    schema = SCHEMAS["schemas/json/contract.schema.json"]
    *good, wrong = [read_document(block.encode()).data for block in yaml_blocks()]
    assert [data for data in good if read_contract(data)[1] or not accepts(schema, data)] == []
    assert good == [generate.TRAINING, generate.IDLE, generate.DEBUG, generate.WHOLE, generate.SWEEP]
    assert wrong == generate.REFUSED
    assert read_contract(wrong)[1]
    assert not accepts(schema, wrong)


@pytest.mark.parametrize("field", generate.TERMS)
def test_a_wrong_value_is_refused_by_the_rule_and_the_schema_of_its_field(field: str) -> None:
    key = field.partition(".")[0]
    data = {**generate.IDLE, "spec": {**generate.IDLE["spec"], key: WRONG[key]}}
    assert generate.TERMS[field][0] in {problem.rule for problem in read_contract(data)[1]}
    assert not accepts(SCHEMAS["schemas/json/contract.schema.json"], data)


def test_every_reference_in_a_schema_leads_somewhere() -> None:
    for name, schema in SCHEMAS.items():
        for file, path in re.findall(r'"\$ref": "([^"#]*)(?:#/\$defs/)?([^"]*)"', json.dumps(schema)):
            target = SCHEMAS[str(Path(name).parent / file)] if file else schema
            assert not path or path in target["$defs"], f"{name}: {path}"


def test_a_command_or_report_may_leave_out_the_type_that_its_subject_names() -> None:
    for family in ("commands", "reports"):
        schema = SCHEMAS[f"schemas/json/{family}.schema.json"]
        assert all("type" not in one.get("required", ()) for one in schema["$defs"].values())
    assert accepts(SCHEMAS["schemas/json/commands.schema.json"], {"job": "job-x"})
    assert not accepts(SCHEMAS["schemas/json/commands.schema.json"], {"jobs": "job-x"})


def accepts(schema: dict[str, Any], value: object) -> bool:
    """Whether a value is of a schema: the part of JSON Schema that ours use, and nothing else."""
    return _accepts(schema, value, schema["$defs"])


def _accepts(schema: dict[str, Any], value: Any, defs: dict[str, Any]) -> bool:  # noqa: ANN401 - any JSON value
    if "$ref" in schema:
        inner = defs.get(schema["$ref"].rpartition("/")[2])
        return inner is None or _accepts(inner, value, defs)
    if "anyOf" in schema:
        return any(_accepts(one, value, defs) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    match schema.get("type"):
        case "object":
            return isinstance(value, dict) and _accepts_object(schema, value, defs)
        case "array":
            items = schema.get("prefixItems") or [schema["items"]] * len(value) if isinstance(value, list) else []
            within = isinstance(value, list) and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 999)
            return within and all(_accepts(item, one, defs) for item, one in zip(items, value, strict=True))
        case "string":
            return isinstance(value, str) and re.search(schema.get("pattern", ""), value) is not None
        case "integer":
            is_int = isinstance(value, int) and not isinstance(value, bool)
            return is_int and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case _:
            return True


def _accepts_object(schema: dict[str, Any], value: dict[str, Any], defs: dict[str, Any]) -> bool:
    known = {re.escape(key): inner for key, inner in schema.get("properties", {}).items()}
    patterns = {**{f"^{key}$": inner for key, inner in known.items()}, **schema.get("patternProperties", {})}
    for key, inner in value.items():
        found = [one for pattern, one in patterns.items() if re.search(pattern, key)]
        if not found and schema.get("additionalProperties") is False:
            return False
        if not all(_accepts(one, inner, defs) for one in found):
            return False
    return all(key in value for key in schema.get("required", ()))
