import json
import os
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.core.words import fields_of
from fairlease.simulator.command import as_json
from fairlease.simulator.comparison import compared, figures_of, shown
from fairlease.simulator.page.comparison import comparison_page
from fairlease.simulator.page.file import problem_of_place, put
from fairlease.simulator.page.paper import Html, tag
from fairlease.simulator.page.plots import Bar, Line, Strip, bars, curves, host_map, length_of, spans, strips
from fairlease.simulator.page.sections import fulfilled
from fairlease.simulator.page.simulation import simulation_page
from fairlease.simulator.page.whatif import whatif_page
from fairlease.simulator.page.words import FIGURES, FIRST, LANGUAGES, MEANINGS, SENTENCES, name_of, say
from fairlease.simulator.runs import simulate_lab
from fairlease_schemas.comparison import Assumption, Outcome, WaitChange, WhatIf
from fairlease_schemas.series import BudgetCourse, HostRow
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return simulate_lab(policy="budget-window", seed=2, hosts=2, measured_ms=3 * HOUR_MS, warm_up_ms=HOUR_MS)


class Reader(HTMLParser):
    """The tables of a page, headings in order, and everything that has an effect."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.headings: list[int] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self._row: list[str] = []
        self._caption = self._text = ""
        self.feed(text)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.add(name)
        self.attributes |= {key for key, _ in attributes}
        self.addresses += [value or "" for key, value in attributes if key in ("src", "href", "action", "data")]
        if re.fullmatch("h[1-6]", name):
            self.headings.append(int(name[1]))
        if name == "tr":
            self._row = []
        self._text = "" if name in ("td", "th", "caption") else self._text

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, name: str) -> None:
        if name == "caption":
            self._caption = self._text
            assert self._caption not in self.tables, "two tables of one name cannot be told apart"
            self.tables[self._caption] = []
        elif name in ("td", "th"):
            self._row.append(self._text)
        elif name == "tr":
            self.tables[self._caption].append(self._row)


def test_the_numbers_of_every_picture_stand_in_a_table(report: dict[str, Any]) -> None:
    tables = Reader(simulation_page(report, "en")).tables
    series = report["series"]
    stretches = len(series["ends_ms"])
    head, *rows = tables["Fulfilment by stretch of time"]
    assert (head[1:], len(rows)) == (list(series["budgets"]), stretches)
    assert all(len(row) == len(head) for row in rows)
    head, *rows = tables["All points of the curves"]
    present = [name for name, curve in series["waits"]["by_class"].items() if curve["jobs"]]
    assert (len(head), len(rows)) == (1 + len(present), len(series["waits"]["permille"]))
    _, *rows = tables["Losses, evictions and promises by stretch of time"]
    assert len(rows) == stretches
    evictions = [sum(int(row[column]) for row in rows) for column in range(7, 7 + len(series["evictions"]))]
    assert sum(evictions) == report["preemption"]["count"]
    assert [row[0] for row in tables["Parts of the time of hosts"][1:]] == ["host-0001", "host-0002"]
    assert {row[0]: row[1] for row in tables["All figures"][1:]} == {
        name: shown(name, value) for name, value in figures_of(report).items()
    }
    assert {row[0] for row in tables["Held and due by budget"][1:]} == set(series["budgets"])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_page_holds_nothing_that_asks_or_acts(report: dict[str, Any], lang: str) -> None:
    text = simulation_page(report, lang)
    found = Reader(text)
    assert not found.names & {"script", "img", "link", "iframe", "object", "a", "form", "base", "embed"}
    assert not {name for name in found.attributes if name.startswith("on")} | (found.attributes & {"style"})
    assert found.addresses == []
    assert not re.search(r"url\((?!#)|@import|https?:", text)
    assert "default-src 'none'" in text.replace("&#x27;", "'")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_headings_go_down_one_by_one(report: dict[str, Any], lang: str) -> None:
    levels = Reader(simulation_page(report, lang)).headings
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert levels.count(1) == 1


def test_a_what_if_shows_three_columns_and_the_jobs_that_changed(report: dict[str, Any]) -> None:
    was, again, would = ({**report, "seed": None}, {**report, "seed": 1}, {**report, "seed": 1, "occupancy": 0.5})
    figures = {
        name: Outcome(was=value, again=value, would=0.5 if name == "occupancy" else value)
        for name, value in figures_of(report).items()
    }
    found = WhatIf(
        digest="ab",
        days=report["days"],
        hosts=2,
        gpus=16,
        change={"patience_ms": "<10m>"},
        figures=figures,
        earlier=1,
        later=0,
        same=7,
        jobs=(WaitChange(job="job-1", budget="a1", was_ms=1000, again_ms=90_000, would_ms=None),),
        rules=(Assumption(rule="each start takes as long as the job's first", count=3),),
    )
    text = whatif_page(found, was, again, would, "en")
    tables = Reader(text).tables
    assert tables["The figures that are told first"][0] == ["figure", "as it was", "played again", "changed"]
    assert ["occupancy", *[shown("occupancy", report["occupancy"])] * 2, "50.0 %"] in tables[
        "The figures that are told first"
    ]
    assert tables["Waits of the jobs that changed most"][1] == ["job-1", "a1", "1.0s", "1.5m", "-"]
    assert ["each start takes as long as the job's first", "3"] in [
        row for name, rows in tables.items() if name.startswith("Rules") for row in rows
    ]
    assert "&lt;10m&gt;" in text
    assert "median over the seeds" not in text


def test_simulate_writes_the_page_beside_its_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    words = ["simulate", "--workload", "lab-1024", "--hosts", "1x8", "--days", "0.01", "--warm-up", "0.01"]
    assert main([*words, "--html", str(path), "--lang", "zh", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["digest"] in path.read_text(encoding="utf-8")
    assert main([*words, "--html", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"\nthe page is written: {path}\n")
    assert main([*words, "--html", str(tmp_path)]) == 64
    assert "is a folder" in capsys.readouterr().err


def test_lists_of_numbers_stand_on_a_line_each(report: dict[str, Any]) -> None:
    text = as_json(report, is_line=False)
    assert json.loads(text) == json.loads(json.dumps(report))
    assert f'"ends_ms": {json.dumps(report["series"]["ends_ms"])}' in text
    assert as_json(report, is_line=True).count("\n") == 1


def test_names_are_escaped_wherever_they_stand(report: dict[str, Any]) -> None:
    name = "<script>alert('&')</script>"
    hostile = json.loads(json.dumps(report).replace("host-0001", name).replace('"a1"', json.dumps(name)))
    hostile["policy"] = name
    text = simulation_page(hostile, "en")
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in text
    frame = {"workload": name, "workload_digest": "0", "hosts": 2, "gpus": 16, "days": 1.0, "seeds": (2,)}
    assert "<script" not in comparison_page(compared([name], [hostile], (), {}, frame), [hostile], "zh")


def test_markup_is_made_by_tags_alone() -> None:
    assert tag("p", "a < b", Html("<b>c</b>"), title='"') == '<p title="&quot;">a &lt; b<b>c</b></p>'


def test_every_sentence_is_there_in_both_languages_and_names_the_same() -> None:
    groups = [*SENTENCES.items(), *FIGURES.items(), *((str(number), words) for number, words in enumerate(MEANINGS))]
    assert {key: list(words) for key, words in groups if list(words) != ["en", "zh"]} == {}
    assert {key: words for key, words in groups if fields_of(words["en"]) != fields_of(words["zh"])} == {}
    assert [key for key, words in groups if not re.search("[\u4e00-\u9fff]", words["zh"])] == []
    assert set(FIRST) <= set(FIGURES)


def test_every_sentence_is_said_somewhere() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(__file__).parents[2] / "services/fairlease/simulator/page").glob("*.py")
        if path.name != "words.py"
    )
    lists = ("wait.", "lost.", "evicted.", "promise.", "cost.")
    states = {"busy", "saving", "faulty", "drained", "idle"}
    by_group = {"no-evictions", "evictions-caption", "promises-caption"}
    keys = {key for key in SENTENCES if not key.startswith(lists)} - states - by_group
    assert {key for key in keys if not re.search(f"[\"']{re.escape(key)}[\"']", sources)} == set()


def test_a_number_is_spoken_with_what_it_counts() -> None:
    assert say("changed-lead", "en", earlier=1, later=0, same=2_000).startswith(
        "Against the same log played again 1 job "
    )
    assert name_of("evicted", "weather", "zh") == "weather"


# pictures --------------------------------------------------------------------------------------------
def test_a_curve_begins_at_its_least_wait_and_ends_at_all_jobs() -> None:
    text = curves([Line("a", (1, 500, 1000), (0, 10 * SECOND_MS, MINUTE_MS))], "tall")
    assert re.findall(r'points="([^"]+)"', text) == ["0,100 0,99.9 500,50 1000,0 1000,0"]
    assert re.findall(r"<span>([0-9]+[smhd])</span>", text) == ["1s", "10s", "1m"]


def test_columns_are_as_high_as_their_part_and_nothing_is_blank() -> None:
    text = strips([Strip("a", "x", (None, 0, 500, 1000, 2000))], (1, 2, 3, 4, 5), 1000)
    assert re.findall(r' d="([^"]*)"', text) == ["M400 100V50H600V100zM600 100V0H800V100zM800 100V0H1000V100z"]


def test_bars_are_on_one_scale_and_say_their_range() -> None:
    text = bars([Bar("a", 50, 25, 100, "50"), Bar("b", 0, 0, 0, "-")])
    assert re.findall(r'width="(\d+)"', text) == ["500", "0"]
    assert "M250 2V18M250 10H1000M1000 2V18" in text


def test_a_map_shows_what_took_most_of_each_stretch() -> None:
    row = HostRow(first="h", last="h", hosts=1, permille={"busy": (1000, 400, 0, 500), "faulty": (0, 600, 1000, 500)})
    assert list(spans(row, 4)) == [("busy", 0, 0), ("faulty", 1, 2), ("busy", 3, 3)]
    text = host_map([row], (1, 2, 3, 4))
    assert 'd="M0 0h250v19h-250zM750 0h250v19h-250z" class="busy"' in text
    assert 'd="M250 0h500v19h-500z" fill="url(#faulty)"' in text


def test_a_map_of_many_rows_names_the_first_the_middle_and_the_last() -> None:
    rows = [HostRow(first=f"h{k}", last=f"h{k}", hosts=1, permille={"busy": (1000,)}) for k in range(64)]
    text = host_map(rows, (1,))
    assert re.findall(r"<span>(h\d+)</span>", text) == ["h0", "h32", "h63"]
    assert "M0 0h1000v8h-1000zM0 8h1000" in text, "low rows have no line between them"


def test_fulfilment_of_a_stretch_is_at_most_one_and_nothing_where_nothing_was_due() -> None:
    assert fulfilled(BudgetCourse(held_gpu_ms=(5, 20, 3), due_gpu_ms=(10, 10, 0))) == [500, 1000, None]


@pytest.mark.parametrize(
    ("length_ms", "told"),
    [(0, "0s"), (90 * SECOND_MS, "1m 30s"), (6 * HOUR_MS, "6h"), (54 * HOUR_MS, "2d 6h"), (30 * DAY_MS, "30d")],
)
def test_lengths_have_two_units_at_most(length_ms: int, told: str) -> None:
    assert length_of(length_ms) == told


# where it goes ---------------------------------------------------------------------------------------
def test_a_page_is_written_whole_in_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    put(str(path), "new \u4e2d")
    assert path.read_text(encoding="utf-8") == "new \u4e2d"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_takes_no_page_is_known_before(tmp_path: Path) -> None:
    assert problem_of_place(None) == problem_of_place(str(tmp_path / "page.html")) == ""
    assert "is a folder" in problem_of_place(str(tmp_path))
    assert "no file can be written" in problem_of_place(str(tmp_path / "no/page.html"))


def test_no_page_takes_the_place_of_a_device_or_of_a_file_of_the_same_command(tmp_path: Path) -> None:
    log, link = tmp_path / "log.jsonl", tmp_path / "link"
    log.write_text("a log\n")
    link.symlink_to(log)
    os.mkfifo(tmp_path / "pipe")
    for device in ("/dev/null", str(tmp_path / "pipe")):
        assert "is a device" in problem_of_place(device)
    for path in (str(log), str(link), f"{tmp_path}/./log.jsonl"):
        assert "would be lost" in problem_of_place(path, None, str(log))
    assert problem_of_place(str(tmp_path / "page.html"), None, str(log)) == ""


def test_a_link_to_a_page_stays_a_link(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "latest.html"
    link.symlink_to(page)
    put(str(link), "<!DOCTYPE html>")
    assert (link.is_symlink(), page.read_text()) == (True, "<!DOCTYPE html>")


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--workload", "lab-1024", "--log", "{}"),
        ("simulate", "--trace", "{}", "--hosts", "2x8"),
        ("whatif", "--policy", "fifo", "--from", "{}"),
        ("compare", "--policies", "fifo", "--must", "{}"),
    ],
    ids=lambda words: f"{words[0]} {words[-2]}",
)
def test_every_command_keeps_its_own_files_from_its_page(tmp_path: Path, words: tuple[str, ...]) -> None:
    own = tmp_path / "own"
    own.write_text("")
    assert main([*(word.format(own) for word in words), "--html", str(own)]) == 64
    assert own.read_text() == ""
