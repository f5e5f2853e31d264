"""Names, and the ids that are made of them."""

from itertools import pairwise

import pytest

from fairlease_schemas.envelope import Address, parse_address
from fairlease_schemas.ids import attempt_id, is_name, is_request_id, job_id, job_of


@pytest.mark.parametrize("text", ["a", "9", "org-a", "a" * 63, "0-0", "h100"])
def test_a_name_is_lower_case_letters_digits_and_dashes(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize("text", ["", "A", "a_b", "a.b", "a b", "-a", "a-", "a" * 64, "ä", "a\n", "a*", ">", "日本"])
def test_what_a_subject_could_not_hold_is_no_name(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize("text", ["r1", "CI/build@1:2+3=4", "https://x", "a" * 128, "0"])
def test_a_request_id_may_come_from_anywhere(text: str) -> None:
    assert is_request_id(text)


@pytest.mark.parametrize("text", ["", "a" * 129, " a", "a b", "-a", "é", "a\0", "a\n", "/x"])
def test_a_request_id_is_printable_without_spaces(text: str) -> None:
    assert not is_request_id(text)


def test_a_job_id_is_what_it_was_in_every_log_ever_written() -> None:
    assert job_id("ann", "a", "r1") == "job-oumtqsgx2np5lyzbnutf"


def test_no_two_parts_run_into_each_other() -> None:
    assert len({job_id("a", "b", "cd"), job_id("a", "bc", "d"), job_id("ab", "c", "d"), job_id("", "abc", "d")}) == 4


@pytest.mark.parametrize("number", [1, 9, 10, 1_000_000])
def test_an_attempt_leads_back_to_its_job(number: int) -> None:
    job = job_id("ann", "a", "r1")
    assert job_of(attempt_id(job, number)) == job


@pytest.mark.parametrize("text", ["", "job", "-a", "-a1"])
def test_what_is_no_attempt_leads_nowhere(text: str) -> None:
    assert job_of(text) == ""


def test_addresses_compare_by_epoch_position_and_index() -> None:
    ordered = [Address(1, 2, 9), Address(1, 10, 0), Address(1, 10, 1), Address(2, 1, 0)]
    assert all(a < b for a, b in pairwise(ordered))


def test_an_address_is_written_and_read() -> None:
    assert parse_address(str(Address(1, 42, 0))) == Address(1, 42, 0)


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "a-1-2", "1--2", "1-2-٣", "1-2-" + "9" * 19, "+1-2-3"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        parse_address(text)
