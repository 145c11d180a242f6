"""Which codecs retain their accuracy: the rule, the table in a page, the picture, the command."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from thinwire.errors import LabError
from thinwire_lab.cli.app import make_app
from thinwire_lab.data.task import ACCURACY, BITS_PER_CHARACTER
from thinwire_lab.report.record import RunOutcome
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.run.records import RunRecords, RunSettings
from thinwire_lab.study.accuracy import (
    AccuracyComparison,
    AccuracyPicture,
    accuracy_markdown,
    accuracy_rows,
    accuracy_studies,
    put_table,
    with_baseline,
)

RECIPE = Recipe("digits", "digits-cnn", epochs=1, batch=16, lr=0.1)


def run(
    codec: str, seed: int, score: float, metric: str = ACCURACY, sent: float = 25.0
) -> tuple[Recipe, RunOutcome]:
    outcome = RunOutcome(
        label=f"{codec} {seed}",
        asked=codec,
        codec=codec,
        seed=seed,
        metric=metric,
        score=score,
        accuracy=score,
        test_loss=0.0,
        steps=10,
        seconds=1.0,
        step_ms=1.0,
        bytes_per_step=100.0 if codec == "ddp" else sent,
        bytes_source="made",
        dense_bytes_per_step=100.0,
        parameters="",
        report=None,
    )
    return replace(RECIPE, codec=codec, seed=seed), outcome


def study(*differences: float, metric: str = ACCURACY) -> AccuracyComparison:
    """A study of one codec whose seeds differ so much from ddp."""
    base = [0.7 + 0.01 * seed for seed in range(len(differences))]
    runs = [run("ddp", seed, value, metric) for seed, value in enumerate(base)]
    runs += [run("sign", seed, base[seed] + own, metric) for seed, own in enumerate(differences)]
    (found,) = accuracy_studies(runs)
    return found


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((-0.004, -0.006, -0.0045), "retained"),
        ((-0.004, -0.006, -0.0055), "lost"),
        ((0.01, 0.02, 0.03), "retained"),
        ((-0.004, -0.004), "level (2 of 3 seeds)"),
        ((-0.02,), "behind (1 of 3 seeds)"),
    ],
)
def test_retained_is_half_a_point_on_average_over_three_seeds(
    differences: tuple[float, ...], verdict: str
) -> None:
    line = study(*differences).codecs[1]
    assert line.verdict == verdict
    assert line.difference.mean == pytest.approx(sum(differences) / len(differences))
    assert line.ratio == 4.0


@pytest.mark.parametrize(("nats", "verdict"), [(0.019, "retained"), (0.021, "lost"), (-0.1, "retained")])
def test_of_text_more_bits_a_character_are_worse_and_0_02_nats_are_allowed(nats: float, verdict: str) -> None:
    assert study(*[nats / math.log(2)] * 3, metric=BITS_PER_CHARACTER).codecs[1].verdict == verdict


def test_seeds_are_set_against_the_same_seed_and_recipes_are_not_mixed() -> None:
    other = replace(RECIPE, lr=0.5, codec="ddp", seed=0)
    runs = [run("ddp", 0, 0.7), run("sign", 0, 0.7), run("sign", 5, 0.1), (other, run("ddp", 0, 0.9)[1])]
    first, second = accuracy_studies(runs)
    assert first.codecs[1].seeds == (0,)  # seed 5 has no baseline
    assert (second.recipe.lr, len(second.codecs)) == (0.5, 1)
    with pytest.raises(LabError, match="no run of ddp"):
        accuracy_studies([run("sign", 0, 0.7)])


def test_a_page_gets_the_table_between_its_marks_and_nothing_else_changes() -> None:
    table = accuracy_markdown(study(0.0, 0.0, 0.0))
    page = "before\n<!-- accuracy: x -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    assert (
        put_table(page, "x", table)
        == f"before\n<!-- accuracy: x -->\n{table}<!-- end -->\nafter <!-- end -->\n"
    )
    assert "| `sign` | 71.00 ± 1.00 % | +0.00 ± 0.00 | 4.0x | **retained** |" in table
    with pytest.raises(LabError, match="no place for the table"):
        put_table("a page", "x", table)


def test_the_picture_has_a_full_dot_for_retained_accuracy_and_a_ring_otherwise() -> None:
    def fills(*differences: float) -> list[str]:
        tree = ElementTree.fromstring(AccuracyPicture(study(*differences)).svg())
        return [circle.attrib["fill"] for circle in tree.iter("{http://www.w3.org/2000/svg}circle")]

    assert fills(0.0, 0.0, 0.0) != ["none"]
    assert fills(-0.5, -0.5, -0.5) == ["none"]


def test_labels_of_the_picture_make_room_for_each_other() -> None:
    runs = [run("ddp", 0, 0.7), run("topk", 0, 0.7, sent=20.0), run("powersgd", 0, 0.7, sent=19.6)]
    (found,) = accuracy_studies(runs)
    tree = ElementTree.fromstring(AccuracyPicture(found).svg())
    labels = {node.text: node.attrib for node in tree.iter("{http://www.w3.org/2000/svg}text")}
    dots = [float(dot.attrib["cx"]) for dot in tree.iter("{http://www.w3.org/2000/svg}circle")]
    left, right = labels["topk"], labels["powersgd"]
    assert "end" in left["class"]
    assert float(left["x"]) < min(dots) < max(dots) < float(right["x"])


def test_dots_of_one_name_that_lie_together_share_a_label() -> None:
    near = [run(codec, 0, 0.7, sent=20.0) for codec in ("sign", "sign @ route=sharded")]
    (found,) = accuracy_studies([run("ddp", 0, 0.7), *near, run("sign:1", 0, 0.7, sent=5.0)])
    tree = ElementTree.fromstring(AccuracyPicture(found).svg())
    labels = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert labels.count("sign") == 2


def test_the_command_reads_records_and_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "small.jsonl"
    runner = CliRunner()
    missing = runner.invoke(make_app(), ["study", "accuracy", str(file)])
    assert isinstance(missing.exception, LabError)
    assert "thinwire compare" in str(missing.exception)
    for recipe, outcome in (run("ddp", 0, 0.7), run("sign", 0, 0.65)):
        RunRecords(file).add(RunSettings(recipe, "virtual"), outcome, [])
    page, picture = tmp_path / "page.md", tmp_path / "accuracy.svg"
    page.write_text("<!-- accuracy: small -->\n<!-- end -->\n")
    told = runner.invoke(
        make_app(), ["study", "accuracy", str(file), "--json", "--into", str(page), "--picture", str(picture)]
    )
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(row["codec"], row["verdict"]) for row in rows][1] == ("sign", "behind (1 of 3 seeds)")
    assert "`sign`" in page.read_text()
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    "name", ["accuracy-cifar10", "accuracy-shakespeare", "accuracy-shakespeare-long", "accuracy-mnist"]
)
def test_docs_show_what_was_recorded(name: str) -> None:
    """If it fails: `thinwire study accuracy docs/records/accuracy-*.jsonl --into` the page."""
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "background" / "accuracy.md").read_text()
    studies = accuracy_studies(RunRecords(docs / "records" / f"{name}.jsonl").runs())
    assert put_table(page, name, "\n".join(map(accuracy_markdown, studies))) == page
    picture = docs / "figures" / f"{name}.svg"
    assert not picture.exists() or AccuracyPicture(studies[0]).svg() == picture.read_text()


def test_local_steps_show_what_was_recorded() -> None:
    """If it fails: the command below the table in docs/background/local-steps.md."""
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "background" / "local-steps.md").read_text()
    own = RunRecords(docs / "records" / "local-shakespeare.jsonl").runs()
    plain = RunRecords(docs / "records" / "accuracy-shakespeare-long.jsonl").runs()
    (study,) = accuracy_studies(with_baseline(own, plain))
    assert put_table(page, "local-shakespeare", accuracy_markdown(study)) == page


def test_the_readme_shows_what_was_recorded() -> None:
    """Its table of costs, codec by codec: differences and ratios of both studies, and a codec that lost."""
    root = Path(__file__).parents[3]
    recorded = {
        name: {
            row[0]: row
            for row in accuracy_rows(
                accuracy_studies(RunRecords(root / f"docs/records/{name}.jsonl").runs())[0]
            )
        }
        for name in ("accuracy-cifar10", "accuracy-shakespeare")
    }
    table = (root / "README.md").read_text().split("## What it costs")[1].split("\n## ")[0]
    lines = re.findall(r"^\| `(.*?)`.*? \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", table, re.M)
    finest = "rotated @ sensitive=rotated:15"
    assert {line[0] for line in lines} == {"qsgd:4", "fft:0.85", "terngrad:1", "rotated", finest, "terngrad"}
    for codec, *cells in lines:
        shown = [re.sub(r"\*| \(.*?\)", "", cell).strip() for cell in cells]
        for name, found in zip(recorded, (shown[:2], shown[2:]), strict=True):
            row = recorded[name].get(codec)
            assert found == (["not run", "-"] if row is None else [row[2], row[3]])
