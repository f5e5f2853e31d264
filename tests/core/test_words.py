"""The closed list of reasons, each as it arises, with its evidence, and the words made of it (9.1, 9.2, 9.4)."""

# ruff: noqa: RUF001 - Chinese is quoted with its own punctuation
import re
from collections.abc import Callable, Iterator

import msgspec
import pytest

from fairlease.core import explain, view
from fairlease.core.planning import plan
from fairlease.core.words import (
    KEPT_FOR_LANE,
    LANE_OF_PERSON,
    PLANS,
    REASONS,
    STATES,
    TAILS,
    WINDOW_ENDS_SOON,
    Number,
    about,
    fields_of,
    sentence_of,
)
from fairlease_schemas.commands import CancelJob, CordonHost, HoldJob
from fairlease_schemas.explain import Counterfactual, Why
from fairlease_schemas.job import After, End, Request
from fairlease_schemas.reasons import Evidence, Reason
from fairlease_schemas.reports import HostUp
from fairlease_schemas.units import MINUTE_MS, format_length
from tests.core.bench import DEBUG, GRACE, LONG, MARGIN, cell, change, idle, left, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, inventory, request

Story = tuple[Cell, str]


# a story for each reason ---------------------------------------------------------------------------------


def budget_cap() -> Story:
    here = change(cell(2, promises_per_pool=0), "a", burst_permille=1)
    whole(here, "one")
    whole(here, "theirs", "b")
    here.submit("gang", "b", hosts=2, gpus_per_host=8)
    return here, whole(here, "two")


def window_overshare() -> Story:
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    return here, whole(here, "claim", "b", min_runtime_ms=4 * HOUR)


def capacity() -> Story:
    here = cell()
    here.submit("run", gpus_per_host=5)
    return here, here.submit("more", gpus_per_host=4)


def fragmentation() -> Story:
    here = cell(2)
    for n in range(2):
        here.submit(f"r{n}", gpus_per_host=5)
    return here, here.submit("more", gpus_per_host=6)


def protected_windows() -> Story:
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    return here, whole(here, "claim", "b")


def reservation() -> Story:
    here = cell()
    idle(here, "spare", gpus=6)
    here.submit("claim", gpus_per_host=4)
    return here, here.submit("late", gpus_per_host=2, min_runtime_ms=HOUR)


def host_maintenance() -> Story:
    here = cell()
    here.submit("one", gpus_per_host=8)
    here.say(CordonHost(host="host-001"), "lead")
    return here, whole(here, "waits")


def host_fault() -> Story:
    here = cell()
    here.submit("one", gpus_per_host=8)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(1, gpus=7)), "host-001")
    return here, whole(here, "waits")


def constraint_conflict() -> Story:
    here = cell()
    job = whole(here, "waits", settle=False)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(1, gpus=4)), "host-001")
    return here, job


def lane_full() -> Story:
    here = cell(promises_per_pool=0)
    here.submit("debug", **(DEBUG | {"gpus_per_host": 4}))
    here.submit("plain", gpus_per_host=4)
    return here, here.submit("more", who="bob", **(DEBUG | {"gpus_per_host": 5}))


def protected_cap() -> Story:
    here = change(cell(2), "a", max_protected_permille=1)
    whole(here, "one")
    return here, whole(here, "two")


def saving() -> Story:
    here = cell(2, promises_per_pool=0, saving_pass_gpu_ms=0)
    first = whole(here, "b0", "b", min_runtime_ms=15 * MINUTE)
    whole(here, "b1", "b", min_runtime_ms=15 * MINUTE)
    here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=8 * HOUR, **LONG)
    here.at(4 * HOUR).gone(first)
    return here, whole(here, "late")


def retry_backoff() -> Story:
    here = cell()
    job = here.submit("fails", max_retries=1)
    return here.gone(job, End.FAILED, 1), job


def thrash_brake() -> Story:
    here = cell(brake_count=1, brake_span_ms=3 * HOUR, margin_permille=0, promises_per_pool=0)
    running = whole(here, "run", min_runtime_ms=HOUR)
    here.at(HOUR)
    claim = whole(here, "first", "b", min_runtime_ms=15 * MINUTE)
    left(here, running).at(70 * MINUTE).gone(claim)
    here.at(3 * HOUR)
    return here, whole(here, "claim", "b")


def awaiting_checkpoint() -> Story:
    here = cell()
    spare = idle(here, "spare", checkpoint_interval_ms=20 * MINUTE)
    here.start(spare).at(17 * MINUTE)
    return here, whole(here, "claim", "b")


ARISES: dict[Reason, tuple[Callable[[], Story], dict[str, int | str]]] = {
    Reason.BUDGET_CAP: (budget_cap, {"pool": "h100", "level": "a", "held_gpus": 16, "limit_gpus": 8}),
    Reason.WINDOW_OVERSHARE: (
        window_overshare,
        {"level": "b", "standing_permille": 333, "other": "a", "other_permille": 83},
    ),
    Reason.CAPACITY: (capacity, {"pool": "h100", "needed_gpus": 4, "free_gpus": 3}),
    Reason.FRAGMENTATION: (
        fragmentation,
        {"pool": "h100", "needed_gpus": 6, "free_gpus": 6, "largest_hole_gpus": 3, "whole_free_hosts": 0},
    ),
    Reason.PROTECTED_WINDOWS: (
        protected_windows,
        {"pool": "h100", "needed_gpus": 8, "free_gpus": 0, "for_ms": HOUR + GRACE + MARGIN},
    ),
    Reason.RESERVATION: (reservation, {"pool": "h100", "claim": "claim", "reserved_hosts": 1, "for_ms": 2 * MINUTE}),
    Reason.HOST_MAINTENANCE: (host_maintenance, {"pool": "h100", "held_gpus": 8}),
    Reason.HOST_FAULT: (host_fault, {"pool": "h100", "held_gpus": 8}),
    Reason.CONSTRAINT_CONFLICT: (constraint_conflict, {"pool": "h100", "needed_hosts": 1}),
    Reason.LANE_FULL: (lane_full, {"pool": "h100", "needed_gpus": 5, "held_gpus": 4, "limit_gpus": 8}),
    Reason.PROTECTED_CAP: (protected_cap, {"pool": "h100", "level": "a", "held_gpus": 16, "limit_gpus": 8}),
    Reason.SAVING: (saving, {"level": "a", "claim": "gang"}),
    Reason.RETRY_BACKOFF: (retry_backoff, {"for_ms": 30 * SECOND}),
    Reason.THRASH_BRAKE: (
        thrash_brake,
        {"pool": "h100", "needed_gpus": 8, "free_gpus": 0, "for_ms": HOUR + GRACE + MARGIN},
    ),
    Reason.AWAITING_CHECKPOINT: (awaiting_checkpoint, {"pool": "h100", "needed_gpus": 8, "for_ms": 3 * MINUTE}),
}
NOT_HERE = {Reason.RESUME_REFUSED, Reason.DEPENDENCY, Reason.JOB_HELD, Reason.POLICY_CHANGE}
"""Those of checkpoints, of held and dependent jobs and of the policy gate: told where these are."""


def asked(here: Cell, job: str) -> Why:
    return explain.why(here.world, here.world.jobs[job])


def test_the_list_of_reasons_is_closed_and_each_has_its_story_here_or_elsewhere() -> None:
    # rule: 9.1
    assert ARISES.keys() | NOT_HERE == set(Reason)
    assert not ARISES.keys() & NOT_HERE


@pytest.mark.parametrize("code", list(ARISES))
def test_each_reason_arises_with_the_evidence_that_proves_it(code: Reason) -> None:
    # rule: 9.1
    build, evidence = ARISES[code]
    here, job = build()
    found = {reason.code: reason for reason in asked(here, job).reasons}
    assert code in found
    named = {job.id: job.request_id for job in here.world.jobs.values()}
    shown = {k: named.get(v, v) if k == "claim" else v for k, v in found[code].evidence.items()}
    assert shown == evidence
    assert (found[code].until_ms is None) is ("for_ms" not in evidence)


@pytest.mark.parametrize("code", list(ARISES))
def test_each_reason_names_the_position_that_recorded_it(code: Reason) -> None:
    # rule: 9.1
    here, job = ARISES[code][0]()
    for reason in asked(here, job).reasons:
        (position,) = reason.positions
        codes = [str(e.code) for e in here.record(position).events if hasattr(e, "code")]
        assert reason.code in codes


# the words ------------------------------------------------------------------------------------------------


KINDS = {
    "lane of a person": LANE_OF_PERSON,
    "window ends soon": WINDOW_ENDS_SOON,
    "kept for the lane": KEPT_FOR_LANE,
}
TABLES = [("reason", REASONS), ("kind", KINDS), ("state", STATES), ("tail", TAILS), ("plan", PLANS)]
SENTENCES = [pytest.param(words, id=f"{name} {key}") for name, table in TABLES for key, words in table.items()]


@pytest.mark.parametrize("words", SENTENCES)
def test_a_sentence_tells_the_same_in_both_languages(words: dict[str, str]) -> None:
    # rule: 9.4
    assert set(words) == set(explain.LANGUAGES)
    assert fields_of(words["en"]) == fields_of(words["zh"])
    assert all(words.values())


@pytest.mark.parametrize("code", list(Reason))
def test_every_reason_has_its_sentence_and_needs_nothing_but_evidence(code: Reason) -> None:
    # rule: 9.1 9.4
    assert fields_of(REASONS[code]["en"]) <= set(Evidence.__struct_fields__)


def values_of(found: object) -> Iterator[str]:
    """Every number and text of a record, keys aside."""
    match found:
        case dict():
            for value in found.values():
                yield from values_of(value)
        case list() | tuple():
            for value in found:
                yield from values_of(value)
        case str() | int():
            yield str(found)


def spoken(text: str, known: set[str], sentences: dict[str, dict[str, str]]) -> str:
    """What is left of the text when all that stands in the record, and in the table's own words, is taken out."""
    for constant in {
        n for words in sentences.values() for words_ in words.values() for n in re.findall(r"\d+", words_)
    }:
        known |= {constant}
    for value in sorted(known, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", "", text) if value else text
    return text


def lengths_of(why: Why) -> set[str]:
    """Lengths in words of the instants and lengths that the answer holds."""
    now_ms = why.as_of.log_time_ms
    starts = [c.start_by_ms for c in why.counterfactuals] + ([why.start_by_ms] if why.start_by_ms is not None else [])
    found = {about(start_ms - now_ms) for start_ms in starts}
    for reason in why.reasons:
        if reason.until_ms is not None:
            found.add(about(reason.until_ms - now_ms))
    for counterfactual in why.counterfactuals:
        found |= {format_length(v) for k, v in counterfactual.change.items() if k.endswith("_ms")}
    return found


@pytest.mark.parametrize("code", list(ARISES))
@pytest.mark.parametrize("lang", explain.LANGUAGES)
def test_every_number_and_name_of_an_answer_stands_in_the_record(code: Reason, lang: str) -> None:
    # rule: 9.4
    here, job = ARISES[code][0]()
    why = asked(here, job)
    text = getattr(why.text, lang)
    record = msgspec.to_builtins(msgspec.structs.replace(why, text=type(why.text)(en="", zh="")))
    contract = here.world.jobs[job]
    ask = contract.request
    known = {*values_of(record), *lengths_of(why), contract.budget}
    known |= {str(ask.hosts), str(ask.gpus_per_host), format_length(ask.min_runtime_ms)}
    rest = spoken(text, known, REASONS)
    assert not re.search(r"\d|job-|host-|h100", rest), rest


@pytest.mark.parametrize("lang", explain.LANGUAGES)
@pytest.mark.parametrize("code", list(REASONS))
def test_a_sentence_shows_each_field_it_names_and_no_other_number(code: Reason, lang: str) -> None:
    """Every field of the evidence gets a number of its own; what the sentence tells is exactly what it names."""
    # rule: 9.4
    numbers = {name: 7_000_001 + 1_013 * n for n, name in enumerate(Evidence.__struct_fields__)}
    names = {"pool": "pool-p", "claim": "job-c", "level": "node-l", "other": "node-o"}
    evidence = Evidence(**(numbers | names))  # type: ignore[arg-type] # by name
    told = explain.told(code, evidence)
    text = REASONS[code][lang].format(**explain._written(told))
    shown = [about(int(v)) if k.endswith("_ms") else str(v) for k, v in told.items()]
    assert set(told) == fields_of(REASONS[code]["en"])
    for value in shown:
        assert value in text
        text = text.replace(value, "", 1)
    assert set(re.findall(r"\d+", text)) <= {"1000"}


def test_until_when_is_told_from_when_it_is_asked() -> None:
    # rule: 9.1 9.4
    here = cell(promises_per_pool=0)
    whole(here, "run", min_runtime_ms=HOUR)
    job = whole(here, "claim", "b")
    here.at(40 * MINUTE)
    (reason,) = asked(here, job).reasons
    assert reason.until_ms == T0 + HOUR + GRACE + MARGIN
    assert "is inside its windows, for 21m at most" in asked(here, job).text.en
    here, job = retry_backoff()
    here.at(10 * SECOND).submit("other")
    assert "the next try comes in 20s" in asked(here, job).text.en


@pytest.mark.parametrize(
    ("length_ms", "said"),
    [
        pytest.param(-1, "0s", id="what is past takes no time any more"),
        pytest.param(1, "1s", id="less than a second is one"),
        pytest.param(90_000, "1m30s", id="few minutes have seconds"),
        pytest.param(599_001, "10m", id="many have none"),
        pytest.param(HOUR + 59_677, "1h1m", id="a length of the log in two units"),
        pytest.param(HOUR - 1, "1h", id="a bound is never told too short"),
        pytest.param(9 * HOUR + 59 * MINUTE + 1, "10h", id="many hours have no minutes"),
        pytest.param(25 * HOUR, "1d1h", id="a day and an hour"),
        pytest.param(240 * HOUR - 1, "10d", id="many days have no hours"),
    ],
)
def test_a_length_is_told_in_two_units_at_most_and_never_too_short(length_ms: int, said: str) -> None:
    # rule: 9.4
    assert about(length_ms) == said


def test_one_is_told_as_one() -> None:
    # rule: 9.4
    here = cell()
    here.submit("run", gpus_per_host=7)
    job = here.submit("more", gpus_per_host=2)
    text = asked(here, job).text.en
    assert "it needs 2 GPUs in pool h100, and 1 is free" in text
    assert "with 1 GPU per host instead of 2: now" in text
    assert PLANS["after-evictions"]["en"].format(length="1m", hosts="h", count=Number(1), lost=Number(1)) == (
        "it would start within 1m on h, after 1 attempt left that loses 1 GPU-minute"
    )


def test_how_many_gpus_are_free_beside_those_in_windows_is_told() -> None:
    # rule: 9.4
    here = cell(2, promises_per_pool=0)
    whole(here, "run", min_runtime_ms=HOUR)
    job = here.submit("gang", "b", hosts=2, gpus_per_host=8, min_runtime_ms=15 * MINUTE)
    text = asked(here, job).text
    assert "it needs 16 GPUs in pool h100, where 8 are free now; the work in its way is inside its windows" in text.en
    assert "该池现有 8 块空闲" in text.zh


def test_a_claim_that_could_evict_now_says_that_it_waits_to_lose_less() -> None:
    # rule: 9.4
    evidence = Evidence(pool="h100", needed_gpus=8, for_ms=3 * MINUTE)
    assert sentence_of(Reason.PROTECTED_WINDOWS, evidence) is WINDOW_ENDS_SOON
    assert explain.told(Reason.PROTECTED_WINDOWS, evidence) == {"pool": "h100", "needed_gpus": 8, "for_ms": 3 * MINUTE}


def test_the_debug_lane_says_which_of_its_limits_it_is() -> None:
    # rule: 9.4 3.1
    here, job = lane_full()
    assert "it needs 5 GPUs in the debug lane of pool h100, which holds 4 of its 8 GPUs" in asked(here, job).text.en
    here = cell(promises_per_pool=0)
    for n in range(2):
        here.submit(f"d{n}", **(DEBUG | {"gpus_per_host": 1}))
    here.submit("plain", gpus_per_host=6)
    third = here.submit("third", **(DEBUG | {"gpus_per_host": 1}))
    text = asked(here, third).text
    assert "holds 2 of its 8 GPUs, room enough for 1, but this person has as many jobs" in text.en
    assert "该用户的调试任务数已达上限" in text.zh


FOREIGN = re.compile(r"[,;:()]")


@pytest.mark.parametrize("words", SENTENCES)
def test_chinese_has_its_own_punctuation(words: dict[str, str]) -> None:
    # rule: 9.4
    assert not FOREIGN.search(re.sub(r"\{[^}]*\}", "", words["zh"]))


def test_a_held_job_says_who_holds_it_once() -> None:
    # rule: 9.4
    here = cell()
    whole(here, "run")
    job = whole(here, "waits")
    here.say(HoldJob(job=job, reason="the data is wrong"))
    why = asked(here, job)
    assert (why.held_by, view.job_view(here.world, here.world.jobs[job]).held_by) == ("ann", "ann")
    held = f"{job} is held by ann (the data is wrong) and does not compete"
    assert why.text.en == f"{held}; it goes on once it is released."
    assert why.text.zh == f"{job} 已被 ann (the data is wrong) 挂起，不参与调度；释放后继续。"


def test_a_job_that_waits_for_another_says_so_once() -> None:
    # rule: 9.4
    here = cell()
    first = whole(here, "first")
    job = here.submit("after", after=(After(job=first, when="ok"),))
    assert asked(here, job).text.en == f"{job} does not compete yet; it starts after {first}."
    assert asked(here, job).text.zh == f"{job} 尚未参与调度；在 {first} 之后启动。"


def test_a_job_that_was_cancelled_for_another_names_it() -> None:
    # rule: 9.4 1.11
    here = cell()
    first = whole(here, "first")
    job = here.submit("after", after=(After(job=first, when="ok"),))
    here.gone(first, End.FAILED, 1)
    why = asked(here, job)
    assert (why.state, why.cancelled_for) == ("cancelled", first)
    assert view.job_view(here.world, here.world.jobs[job]).cancelled_for == first
    assert why.text.en == f"{job} was cancelled; {first}, which it waited for, did not end well."


def test_a_job_in_every_state_is_told_in_both_languages() -> None:
    # rule: 9.4
    here = cell(2, rank_period_ms=10 * SECOND)
    states = {}
    job = here.submit("one", max_retries=1)
    states[asked(here, job).state] = asked(here, job).text
    here.start(job)
    states[asked(here, job).state] = asked(here, job).text
    here.gone(job, End.FAILED, 7)
    states[asked(here, job).state] = asked(here, job).text
    here.at(MINUTE).gone(job, End.FAILED, 7)
    states[asked(here, job).state] = asked(here, job).text
    other = here.submit("two")
    here.say(CancelJob(job=other))
    states[asked(here, other).state] = asked(here, other).text
    here.gone(other, End.CANCELLED, 143)
    states[asked(here, other).state] = asked(here, other).text
    assert set(states) == {"granted", "running", "backoff", "failed", "stopping", "cancelled"}
    assert states["failed"].en == f"{job} failed (exit code 7)."
    assert all(text.zh.endswith("。") for text in states.values())


# what would change it ---------------------------------------------------------------------------------------


def changes(here: Cell, job: str) -> list[tuple[dict[str, int], int]]:
    return [(c.change, c.start_by_ms - T0) for c in asked(here, job).counterfactuals]


def test_with_fewer_hosts_it_would_start_now() -> None:
    # rule: 9.2
    here = cell(5)
    whole(here, "run")
    job = here.submit("gang", hosts=5, gpus_per_host=8, min_runtime_ms=15 * MINUTE)
    assert ({"hosts": 2}, 0) in changes(here, job)
    assert "with 2 hosts instead of 5: now" in asked(here, job).text.en
    assert "若改用 2 台主机（现为 5）：现在即可启动" in asked(here, job).text.zh


def test_the_largest_smaller_request_of_a_host_is_named() -> None:
    # rule: 9.2
    here = cell()
    here.submit("run", gpus_per_host=3, min_runtime_ms=4 * HOUR)
    job = here.submit("more", gpus_per_host=8)
    assert changes(here, job)[0] == ({"gpus_per_host": 5}, 0)


def test_with_a_shorter_window_it_could_be_promised_hosts_or_evict_sooner() -> None:
    # rule: 9.2
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    job = whole(here, "claim", "b", min_runtime_ms=4 * HOUR)
    assert ({"min_runtime_ms": 30 * MINUTE}, HOUR + GRACE + MARGIN) in changes(here, job)
    assert "with a window of 30m instead of 4h: within 1h1m" in asked(here, job).text.en


def test_a_counterfactual_must_be_sooner_than_what_is_so() -> None:
    # rule: 9.2
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    job = whole(here, "claim", "b", min_runtime_ms=30 * MINUTE)
    assert asked(here, job).start_by_ms == T0 + HOUR + GRACE + MARGIN
    assert changes(here, job) == []


def test_rank_and_promise_are_told() -> None:
    # rule: 9.2
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    first = whole(here, "first", "b", min_runtime_ms=15 * MINUTE)
    second = whole(here, "second", "b", min_runtime_ms=16 * MINUTE)
    assert [(asked(here, job).rank, asked(here, job).start_by_ms) for job in (first, second)] == [
        (1, T0 + HOUR + GRACE + MARGIN),
        (2, None),
    ]
    assert "it is promised to start within 1h1m; it is number 1 in line" in asked(here, first).text.en
    here.at(30 * MINUTE)
    assert "within 31m" in asked(here, first).text.en


def test_who_runs_has_neither_rank_nor_counterfactuals() -> None:
    # rule: 9.2
    here = cell()
    job = whole(here, "run")
    found = asked(here, job)
    assert (found.rank, found.start_by_ms, found.reasons, found.counterfactuals) == (None, None, (), ())


def test_asking_changes_nothing_and_gives_the_same_twice() -> None:
    # rule: 9.4
    here, job = ARISES[Reason.PROTECTED_WINDOWS][0]()
    before = here.world.digest()
    assert asked(here, job) == asked(here, job)
    assert here.world.digest() == before
    assert isinstance(asked(here, job).counterfactuals, tuple)
    assert all(isinstance(c, Counterfactual) for c in asked(here, job).counterfactuals)


# plans ----------------------------------------------------------------------------------------------------


def planned(here: Cell, budget: str = "b", **fields: object) -> object:
    ask: Request = request(**({"gpus_per_host": 8, "pools": ("h100",)} | fields))
    return plan(here.world, "ann", budget, ask)


def with_idle_work() -> Cell:
    here = cell()
    idle(here, "spare")
    return here.at(25 * MINUTE)


def with_a_window() -> Cell:
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    return here


PLANNED = {
    "now": lambda: planned(cell()),
    "after-evictions": lambda: planned(with_idle_work()),
    "promised": lambda: planned(with_a_window()),
    "later": lambda: planned(window_overshare()[0], min_runtime_ms=4 * HOUR),
    "refused": lambda: planned(cell(), "nowhere"),
}


@pytest.mark.parametrize("when", list(PLANNED))
@pytest.mark.parametrize("lang", explain.LANGUAGES)
def test_every_number_and_name_of_a_plan_stands_in_it(when: str, lang: str) -> None:
    # rule: 9.4 9.2
    found = PLANNED[when]()
    assert found.when == when
    record = msgspec.to_builtins(msgspec.structs.replace(found, text=type(found.text)(en="", zh="")))
    known = {*values_of(record), str(len(found.evictions)), str(found.lost_gpu_ms // MINUTE_MS)}
    known |= {about(v) for k, v in found.evidence.items() if k.endswith("_ms")}
    if found.start_by_ms is not None:
        known.add(about(found.start_by_ms - found.as_of.log_time_ms))
    rest = spoken(getattr(found.text, lang), known, REASONS)
    assert not re.search(r"\d|job-|host-|h100", rest), rest
