"""The README's picture: gains from the grid's lines, costs from a comparison's, seed by seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browser import Browser, chromium
from made_runs import made_record
from thinwire.errors import LabError
from thinwire_lab.report.record import RunOutcome
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.study.accuracy import AccuracyComparison, accuracy_studies
from thinwire_lab.study.gain import Gain, gains_of, write_opening_picture

RATES = ("100mbit", "1gbit")
LONG = "topk:0.04,start=5% @ feedback=momentum:mask=off,lr=on"
SVG = "{http://www.w3.org/2000/svg}"


def cell(rate: str, ddp: float, took: str, workers: int = 4) -> dict[str, Any]:
    times = {"ddp": ddp, "terngrad": ddp / 8, "auto": ddp / 16}
    report = f"auto ({took}) on 4 workers\nauto: {took} from step 58 on, a step takes 1 ms\n"
    return {
        "model": "alexnet",
        "rate": rate,
        "workers": workers,
        "measured_ms": times,
        "speedup_vs_ddp": {name: ddp / value for name, value in times.items()},
        "auto": {"report": report},
        "auto_quality": "aggressive",
    }


GRID = [cell("100mbit", 3000, "powersgd:4"), cell("1gbit", 400, "terngrad"), cell("1gbit", 9, "x", workers=8)]


def runs(*scores: tuple[str, int, float, float], **changes: Any) -> list[tuple[Recipe, RunOutcome]]:
    """Runs by (codec, seed, score, bytes a step)."""
    origin, outcome = made_record().origin, made_record().outcomes[0]
    outcome = replace(outcome, dense_bytes_per_step=1000.0)
    return [
        (
            recipe_from_dict({**origin.recipe, "codec": codec, "seed": seed, **changes}),
            replace(outcome, asked=codec, seed=seed, score=score, bytes_per_step=size),
        )
        for codec, seed, score, size in scores
    ]


def made_costs() -> AccuracyComparison:
    (study,) = accuracy_studies(
        runs(
            ("ddp", 0, 0.99, 1000.0),
            ("terngrad", 0, 0.98, 100.0),
            ("ddp", 1, 0.97, 1000.0),
            ("terngrad", 1, 0.97, 100.0),
            (LONG, 0, 0.85, 9.0),
            (LONG, 1, 0.80, 9.0),
            ("sign", 1, 0.90, 500.0),
        )
    )
    return study


def test_gains_are_those_of_the_cells_asked_for() -> None:
    gains = gains_of(GRID, "alexnet", 4, RATES, ["terngrad", "auto"])
    assert gains[0] == Gain("ddp", (3000, 400), (1, 1))
    assert gains[1] == Gain("terngrad", (375, 50), (8, 8))
    assert gains[2].took == ("powersgd:4", "terngrad")


def test_what_the_grid_lacks_is_named() -> None:
    with pytest.raises(LabError, match=r"no cell of alexnet, 10mbit, 4 workers: measure it"):
        gains_of(GRID, "alexnet", 4, ["10mbit"], [])
    with pytest.raises(LabError, match=r"did not measure fp16 at 100mbit: it has ddp, terngrad, auto"):
        gains_of(GRID, "alexnet", 4, RATES, ["fp16"])


def test_a_cost_is_a_difference_seed_by_seed() -> None:
    ddp, _, terngrad, _ = made_costs().codecs
    assert (ddp.difference.values, ddp.ratio) == ((0.0, 0.0), 1.0)
    assert terngrad.difference.values == pytest.approx((-0.01, 0.0))
    assert terngrad.ratio == pytest.approx(10)


def test_codecs_can_be_chosen_and_what_was_not_run_is_named() -> None:
    assert [line.codec for line in made_costs().only(["sign", "ddp"]).codecs] == ["ddp", "sign"]
    assert made_costs().only([]) == made_costs()
    with pytest.raises(LabError, match="no run of topk has recipe and seed of a run of ddp"):
        made_costs().only(["topk"])


def drawn(path: Path) -> list[str]:
    gains = gains_of(GRID, "alexnet", 4, RATES, ["terngrad", "auto"])
    write_opening_picture(path, gains, RATES, "alexnet, 4 workers, measured", made_costs())
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]


def test_the_picture_says_gain_and_cost(tmp_path: Path) -> None:
    path = tmp_path / "gain.svg"
    texts = drawn(path)
    for told in (
        "-7.00",
        "digits-cnn on digits, 4 workers, 20 steps, 1 to 2 seeds",
        "3,000 ms",
        "375 ms",
        "8.0x",
        "16.0x",
        "98.00 %",
        "-0.50 ± 0.71",
        "10.0x fewer",
    ):
        assert told in texts
    assert "auto (aggressive) took powersgd:4 at 100 Mbit/s, terngrad at 1 Gbit/s" in texts
    assert "prefers-color-scheme: dark" in path.read_text()
    assert "terngrad: 8.0x faster at 100 Mbit/s" in ElementTree.parse(path).getroot().attrib["aria-label"]
    assert path.stat().st_size < 8000


@pytest.mark.skipif(chromium() is None, reason="needs Chromium (Debian package chromium)")
def test_no_text_lies_on_another_one_or_sticks_out(tmp_path: Path) -> None:
    path = tmp_path / "gain.svg"
    drawn(path)
    with Browser(chromium() or "", tmp_path / "profile") as browser:
        for dark, colour in ((False, "rgb(255, 255, 255)"), (True, "rgb(13, 17, 23)")):
            browser.open(path, width=600, dark=dark)
            assert browser.ask("getComputedStyle(document.querySelector('.paper')).fill") == colour
        boxes = browser.ask(
            "[...document.querySelectorAll('text')].map(t => t.getBBox())"
            ".map(b => [b.x, b.x + b.width, b.y, b.y + b.height])"
        )
    assert all(left >= 0 and right <= 560 for left, right, _, _ in boxes)
    for k, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[k + 1 :]:
            apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
            assert apart, f"texts {boxes[k]} and {other} lie on each other"


def test_the_labels_of_the_readmes_picture_are_whole() -> None:
    picture = Path(__file__).parents[3] / "docs" / "figures" / "gain.svg"
    texts = ["".join(node.itertext()) for node in ElementTree.parse(picture).iter(f"{SVG}text")]
    assert not [text for text in texts if "..." in text or "\N{HORIZONTAL ELLIPSIS}" in text]
    assert "topk:0.04,start=5%" in texts
    assert texts.count("feedback=momentum:mask=off,lr=on") == 2
