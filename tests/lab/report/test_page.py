"""The page in a real browser: everything is drawn, the slider moves the time axis, the console is silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, chromium
from made_runs import made_record
from thinwire_lab.report.run_report import write_report

BOXES = ("score-steps", "score-bytes", "score-time", "loss-steps", "loss-bytes", "loss-time")
SLIDE = """(() => {{
  const slider = document.getElementById("rate");
  slider.value = {};
  slider.dispatchEvent(new Event("input"));
}})()"""
LONG = "topk:0.01 @ feedback=none schedule=guard:window=1,patience=1,gain=0.9"
PROGRAM = chromium()

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (Debian: apt install chromium)")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(made_record(("ddp", "terngrad", LONG)), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(PROGRAM or "", tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def count(browser: Browser, selector: str) -> int:
    found: int = browser.ask(f"document.querySelectorAll({selector!r}).length")
    return found


def test_everything_is_drawn(browser: Browser, page: Path) -> None:
    browser.open(page)
    for box in BOXES:
        assert count(browser, f"#{box} path.curve") == 9, "three codecs, each with two seeds and their mean"
    assert count(browser, "#stages rect.part") == 3 + 2 * 7
    assert count(browser, "#layer-errors circle.dot") == count(browser, "#layer-bytes circle.dot") == 2
    assert count(browser, "#history path.curve") == 3, "compute, wait, encode"
    assert count(browser, "#histograms svg") == 4
    drawn = browser.ask("[...document.querySelectorAll('path.curve')].every(p => p.getTotalLength() > 9)")
    assert drawn is True
    assert browser.complaints == []


def test_the_slider_recomputes_time(browser: Browser, page: Path) -> None:
    browser.open(page)
    ticks = "[...document.querySelectorAll('#{} .tick')].map(t => t.textContent)"
    seen = {box: browser.ask(ticks.format(box)) for box in (*BOXES, "stages")}
    cell = "document.querySelector('td[data-codec=\"0\"]').textContent"
    assert browser.ask(cell) == "2.2 s", (
        "20 steps of 100.5 ms, waiting without a link included, and 9.6 ms of travelling"
    )
    browser.ask(SLIDE.format(7))
    assert browser.ask("document.getElementById('rate-text').textContent") == "10 Mbit/s"
    changed = {box for box, before in seen.items() if browser.ask(ticks.format(box)) != before}
    assert changed == {"score-time", "loss-time", "stages"}
    assert browser.ask(cell) == "21.2 s"
    assert "10 Mbit/s" in browser.ask("document.querySelector('#score-time .xname').textContent")


def test_legend_table_and_theme(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.ask("document.querySelectorAll('.legend button')[1].click()")
    assert count(browser, "#score-steps path.curve") == 6
    first = "document.querySelector('table.headline tbody tr td').textContent"
    for expected in (LONG, "ddp"):  # fewest bytes first, then most
        browser.ask("document.querySelectorAll('table.headline th')[2].click()")
        assert browser.ask(first) == expected
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.ask(paper) == "rgb(255, 255, 255)"
    browser.ask("document.getElementById('theme').click()")
    assert browser.ask(paper) == "rgb(18, 22, 28)"
    assert browser.complaints == []


def test_a_phone_in_the_dark(browser: Browser, page: Path) -> None:
    browser.open(page, width=390, dark=True)
    assert browser.ask("document.documentElement.scrollWidth") == 390, "nothing sticks out"
    right = (
        "Math.max(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().right))"
    )
    assert browser.ask(right) <= 390
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert browser.complaints == []
