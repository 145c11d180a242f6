"""thinwire plan and thinwire figure5: tables, JSON, curves, and one sentence for what cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from printed import Call

CLUSTER = ("--nodes", "8", "--gpus", "2", "--link", "1gbit", "--intra", "pcie")
FEW = ("--codecs", "terngrad,topk:0.01")


@pytest.mark.parametrize("words", [("plan", "googlenet", "--nodes", "8"), ("plan", "alexnet"), ("figure5",)])
def test_tables_fit_80_columns(
    call: Call, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = call(*words, *(("--no-ours", "--out", str(tmp_path)) if words[0] == "figure5" else ())).out
    figures = [line for line in out.splitlines() if sum(ch.isdigit() for ch in line) > len(line.strip()) / 10]
    table = [line for line in figures if ": " not in line]  # sentences may be longer
    assert len(table) > 3
    assert max(map(len, table)) <= 80, out


def test_a_table_with_a_line_for_each_codec(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = call("plan", "resnet50", *CLUSTER, *FEW).out
    first, heads, *lines = out.splitlines()
    assert first == "resnet50, 25.56 M parameters, 8 nodes of 2 GPUs on pcie, 1gbit between nodes"
    assert heads.split()[:3] == ["codec", "step", "ms"]
    assert [line.split()[0] for line in lines[:3]] == ["dense", "terngrad", "topk:0.01"]
    assert "none of them measured on your cluster" in out
    assert "assumed: 25% of v100's 125 Tflop/s" in out


def test_json_has_a_row_a_codec(call: Call) -> None:
    rows = call("plan", "resnet50", *CLUSTER, *FEW, "--json").rows()
    assert [row["codec"] for row in rows] == ["dense", "terngrad", "topk:0.01"]
    asked = {"codec", "nodes", "gpus", "link", "step_ms", "speedup_vs_dense", "bytes_per_worker", "pays"}
    assert all(asked <= row.keys() for row in rows)
    dense, terngrad, _ = rows
    assert (dense["nodes"], dense["gpus"], dense["link"]) == (8, 2, "1gbit")
    assert (dense["speedup_vs_dense"], dense["pays"], terngrad["pays"]) == (1.0, False, True)
    assert terngrad["step_ms"] == pytest.approx(dense["step_ms"] / terngrad["speedup_vs_dense"])
    assert terngrad["pays_from_nodes"] == 2


def test_a_codec_that_cannot_serve_is_a_row_too(call: Call) -> None:
    words = ("plan", "googlenet", "--nodes", "10000", "--codecs", "qsgd:4")
    *_, row = call(*words, "--json").rows()
    assert row["step_ms"] is None
    assert "at most" in row["refusal"]
    assert "qsgd:4 cannot serve: qsgd:4 adds up at most" in call(*words).out


def test_a_sweep_draws_curves(call: Call, tmp_path: Path) -> None:
    words = ("plan", "googlenet", "--nodes", "4", "--codecs", "fp16,powersgd:4", "--sweep", "link")
    table = call(*words, "--out", str(tmp_path / "new")).out.split("\n\n")[1].splitlines()
    assert len(table) == 1 + 7 + 1  # heads, links, where the curves are
    picture = (tmp_path / "new" / "plan-googlenet-link.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    page = (tmp_path / "new" / "plan-googlenet-link.html").read_text()
    assert "Where the inputs come from" in page
    assert "http" not in page.partition("<body>")[2].partition("<script")[0]


@pytest.mark.parametrize(("sweep", "points"), [("nodes", 15), ("link", 7)])
def test_a_sweep_is_a_row_for_each_codec_and_point(call: Call, sweep: str, points: int) -> None:
    words = ("plan", "googlenet", "--nodes", "4", "--codecs", "fp16", "--sweep", sweep, "--json")
    rows = call(*words).rows()
    assert len(rows) == 2 * points
    assert len({row["nodes" if sweep == "nodes" else "link"] for row in rows}) == points


def test_one_codec_beside_a_cluster_is_forecast(call: Call) -> None:
    rows = call("plan", "alexnet-32", "--nodes", "4", "--codec", "sign", "--json").rows()
    assert [row["codec"] for row in rows] == ["dense", "sign"]


def test_without_a_cluster_tensors_are_shown_as_ever(call: Call) -> None:
    rows = call("plan", "alexnet", "--workers", "4", "--json").rows()
    assert rows[0]["name"] == "conv1.weight"
    assert rows[0]["numel"] == 32 * 3 * 5 * 5  # the lab's
    assert rows[-1]["workers"] == 4
    large = call("plan", "alexnet-224", "--codec", "fp16").out
    assert "37,748,736" in large  # fc6 of the paper's


def test_models_of_the_lab_are_forecast_too(call: Call) -> None:
    words = ("--nodes", "4", "--device", "cpu", "--codecs", "terngrad", "--json")
    (small, _), (large, _) = (call("plan", name, *words).rows() for name in ("alexnet-32", "alexnet"))
    assert large["bytes_per_worker"] > 9 * small["bytes_per_worker"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("resnet51", "--nodes", "4"), 'no network "resnet51": did you mean "resnet50"'),
        (("resnet51",), 'no network "resnet51"'),
        (("resnet50", "--link", "1gigabit"), 'no link "1gigabit"'),
        (("resnet50", "--nodes", "4", "--intra", "nvlik"), 'no link "nvlik": did you mean'),
        (("resnet50", "--nodes", "0"), "nodes=0: a cluster has at least one node"),
        (("resnet50", "--gpus", "0"), "gpus=0: a cluster has at least one node"),
        (("no_such_thing:net", "--nodes", "4"), "no_such_thing cannot be imported"),
        (("resnet50", "--nodes", "4", "--batch", "0"), "batch=0"),
        (("resnet50", "--nodes", "4", "--device", "v10"), 'no device "v10"'),
        (("resnet50", "--nodes", "4", "--sweep", "gpus"), 'no sweep "gpus": known are nodes, link'),
        (("resnet50", "--nodes", "4", "--way", "ring"), 'no way "ring"'),
        (("resnet50", "--nodes", "4", "--share", "2"), "share=2 of a device"),
        (("resnet50", "--nodes", "4", "--codecs", "terngard"), 'no codec "terngard"'),
        (("resnet50", "--nodes", "4", "--examples-per-s", "0"), "must be above 0"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(call: Call, words: tuple[str, ...], sentence: str) -> None:
    printed = call("plan", *words)
    assert (printed.code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_a_folder_that_cannot_be_made(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ("plan", "googlenet", "--nodes", "2", "--codecs", "fp16", "--sweep", "link")
    printed = call(*words, "--out", str(tmp_path / "file" / "below"))
    assert printed.code == 2
    assert "cannot be written" in printed.err


def test_mistakes_cost_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from thinwire.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", "resnet50", "--link", "fast"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('thinwire: there is no link "fast"')


def test_help_has_examples(call: Call) -> None:
    for command in ("plan", "figure5"):
        assert f"thinwire {command}" in call(command, "--help").out


def test_figure5_prints_both_tables_and_draws(call: Call, tmp_path: Path) -> None:
    out = call("figure5", "--no-ours", "--out", str(tmp_path)).out
    assert out.count("held-out cells: median error") == 2
    assert (tmp_path / "figure5.png").read_bytes().startswith(b"\x89PNG")
    rows = call("figure5", "--no-ours", "--json").rows()
    assert len(rows) == 240
    assert sum(row["role"] == "held out" for row in rows) == 60 + 58
