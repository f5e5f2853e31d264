"""Pages of simulations in a real Chromium: wide and on a phone, light and dark, in English and Chinese."""

import copy
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlease.simulator.comparison import compared, figures_of
from fairlease.simulator.page.comparison import comparison_page
from fairlease.simulator.page.simulation import simulation_page
from fairlease.simulator.page.whatif import whatif_page
from fairlease.simulator.runs import simulate_lab
from fairlease_schemas.comparison import Outcome, WaitChange, WhatIf
from fairlease_schemas.units import HOUR_MS
from tests.peers.browser import Browser, Page, browser

AXE = gzip.decompress((Path(__file__).parents[1] / "data/axe-core/axe.min.js.gz").read_bytes()).decode()
RULES = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(
    one => one.id + ": " + one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(" | ")))"""
FITS = "document.documentElement.scrollWidth <= window.innerWidth"
UNFOLD = "document.querySelectorAll('{}').forEach(one => {{ one.open = true; }})"
FOLDED = {"simulation": "details", "comparison": "main > section details", "whatif": "main > section details"}
"""What is looked into. Runs in time are folded into a comparison as they stand on the page of a simulation."""
LOOKS = (("en", "light"), ("zh", "dark"))
HOSTILE = "</style><script>window.hurt = 1; alert(1)</script><img src=x onerror='window.hurt = 2'>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    home = tmp_path_factory.mktemp("browser") / "home"
    home.mkdir()
    with browser(home) as found:
        yield found


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return simulate_lab(policy="budget-window", seed=2, hosts=4, measured_ms=2 * HOUR_MS, warm_up_ms=HOUR_MS)


@pytest.fixture(scope="module")
def pages(report: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page in every language, as files."""
    reports = [{**report, "policy": policy} for policy in ("budget-window", "another")]
    frame: dict[str, Any] = {"workload": "lab-1024", "hosts": 4, "gpus": 32, "days": 0.0833, "seeds": (2,)}
    digest = report["workload_digest"]
    found = compared([one["policy"] for one in reports], reports, (), {}, {**frame, "workload_digest": digest})
    figures = {name: Outcome(was=value, again=value, would=value) for name, value in figures_of(report).items()}
    moved = WaitChange(job="job-1", budget="a1", was_ms=1, again_ms=1000, would_ms=None)
    frame = {"days": 0.0833, "hosts": 4, "gpus": 32, "earlier": 1, "later": 0, "same": 0, "rules": ()}
    would = WhatIf(digest="0", change={"patience_ms": "0"}, figures=figures, jobs=(moved,), **frame)
    where = tmp_path_factory.mktemp("pages")
    made = {
        "simulation-en": simulation_page(report, "en"),
        "simulation-zh": simulation_page(report, "zh"),
        "comparison-en": comparison_page(found, reports, "en"),
        "comparison-zh": comparison_page(found, reports, "zh"),
        "whatif-en": whatif_page(would, {**report, "seed": None}, report, report, "en"),
    }
    for name, text in made.items():
        (where / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: where / f"{name}.html" for name in made}


@pytest.mark.parametrize(
    ("kind", "lang", "width", "scheme"),
    [
        *(("simulation", lang, width, scheme) for lang, scheme in LOOKS for width in (1280, 390)),
        *(("comparison", lang, width, scheme) for lang, scheme in LOOKS for width in (1280, 390)),
        ("whatif", "en", 390, "light"),
    ],
)
def test_a_page_is_for_everybody_and_asks_for_nothing(
    chromium: Browser, pages: dict[str, Path], kind: str, lang: str, width: int, scheme: str
) -> None:
    name = f"{kind}-{lang}"
    page = Page(chromium, width, scheme)
    page.open(pages[name])
    assert page.complaints() == []
    assert page.requests() == [pages[name].as_uri()]
    assert page.run(FITS), "the page is wider than its window"
    page.run(UNFOLD.format(FOLDED[kind]))
    page.run(AXE)
    assert page.run(RULES) == []
    assert page.run(FITS), "a table is wider than the page"
    page.to_paper()
    assert page.run(FITS), "print would shrink the page or cut a table off"


def test_names_that_are_markup_are_read_and_never_run(
    chromium: Browser, report: dict[str, Any], tmp_path: Path
) -> None:
    hostile = copy.deepcopy(report)
    hostile["policy"] = HOSTILE
    series = hostile["series"]
    series["budgets"] = {HOSTILE: next(iter(series["budgets"].values()))}
    series["hosts"][0]["first"] = HOSTILE
    series["evictions"] = {HOSTILE: next(iter(series["evictions"].values()))}
    hostile["rules"] = [{"rule": HOSTILE, "count": 1}]
    path = tmp_path / "hostile.html"
    path.write_text(simulation_page(hostile, "en"), encoding="utf-8")
    page = Page(chromium, 1280, "light")
    page.open(path)
    assert page.complaints() == []
    assert page.run("[window.hurt ?? 0, document.scripts.length, document.images.length]") == [0, 0, 0]
    assert page.run("document.querySelector('h1').textContent") == f"Simulation: {HOSTILE}"


def test_the_judge_finds_what_is_wrong(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "wrong.html"
    path.write_text("<!DOCTYPE html><html><body><img src='data:,x'><p style='color:#ccc'>pale</p></body></html>")
    page = Page(chromium, 390, "light")
    page.open(path)
    page.run(AXE)
    found = {told.partition(":")[0] for told in page.run(RULES)}
    assert {"image-alt", "html-has-lang", "document-title", "color-contrast"} <= found


def test_the_page_s_own_policy_stops_what_would_ask_for_something(
    chromium: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    text = pages["simulation-en"].read_text(encoding="utf-8")
    path = tmp_path / "changed.html"
    path.write_text(text.replace("</main>", "<script>window.hurt = 1</script></main>"), encoding="utf-8")
    page = Page(chromium, 1280, "light")
    page.open(path)
    assert page.run("window.hurt ?? 0") == 0
    assert any("Content Security Policy" in told for told in page.complaints())
