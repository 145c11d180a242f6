"""TernGrad's Figure 5: the fit sees cells of up to 16 GPUs alone, and meets the others within the goal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thinwire_lab.figure5 import model as fitting
from thinwire_lab.figure5.forecasts import curves, errors, ours, parameters, verdict
from thinwire_lab.figure5.model import (
    BATCHES,
    CLUSTERS,
    ETHERNET,
    FLOAT,
    INFINIBAND,
    NETWORKS,
    RING,
    STATED_BATCHES,
    TERNARY,
    TWO_COPIES,
    cells,
    fit,
    judge,
    latency_cell,
    wire_bytes,
)


def test_all_bars_are_there() -> None:
    assert len(cells()) == 2 * 3 * 2 * 10
    assert sum(cell.held_out for cell in cells()) == 60
    speedup = {
        cell.wire: cell.images_per_s
        for cell in cells(ETHERNET)
        if (cell.network, cell.gpus) == ("alexnet", 8)
    }
    assert speedup[TERNARY] / speedup[FLOAT] == pytest.approx(3.04, abs=0.01)  # the paper's text


@pytest.mark.parametrize(("name", "ratio"), [("alexnet", 7.98), ("vgg-a", 10.97), ("googlenet", 5.0)])
def test_bytes_of_the_paper(name: str, ratio: float) -> None:
    """The last layer stays in float: 8x, not 16x."""
    network = NETWORKS[name]
    assert wire_bytes(network, FLOAT) / wire_bytes(network, TERNARY) == pytest.approx(ratio, rel=0.01)


def test_the_goal_is_met() -> None:
    table = judge()
    assert len(table.held_out) == 60
    assert table.reached
    assert table.median_error < 0.02
    assert table.worst.beyond_blur < 0.12
    assert "met" in verdict(table)


def test_latency_from_one_cell_explains_the_largest_clusters() -> None:
    assumed, seen = judge(), judge(with_latency=True)
    assert len(seen.held_out) == 58  # the seen ones do not count
    assert seen.reached
    assert seen.worst.beyond_blur < assumed.worst.beyond_blur / 1.5
    assert seen.clusters[ETHERNET].latency_s > assumed.clusters[ETHERNET].latency_s


def test_held_out_cells_are_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other bars beyond 16 GPUs leave all parameters as they are."""
    before = fit(INFINIBAND)
    wrong = [replace(c, images_per_s=c.images_per_s / 3) if c.held_out else c for c in cells(INFINIBAND)]
    monkeypatch.setattr(fitting, "cells", lambda _: wrong)
    assert fit(INFINIBAND) == before


def test_the_form_is_chosen_by_the_fitted_cells() -> None:
    assert fit(ETHERNET).form == TWO_COPIES
    assert fit(ETHERNET, RING).misfit > 5 * fit(ETHERNET, TWO_COPIES).misfit
    assert fit(INFINIBAND).form == RING  # they cannot tell, so nothing speaks against the ring


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_batch_of_alexnet_is_chosen_by_the_fitted_cells(cluster: str) -> None:
    stated, taken = (fit(cluster, None, batches).misfit for batches in (STATED_BATCHES, BATCHES))
    assert stated > 10 * taken


def test_parameters_are_of_this_world() -> None:
    """Close to the data sheets: PCI Express 3 and NVLink, 1 Gbit/s Ethernet."""
    ethernet, infiniband = judge().clusters.values()
    assert 8e9 < 1 / ethernet.inside < 16e9
    assert 30e9 < 1 / infiniband.inside < 90e9
    assert 90e6 < 1 / ethernet.network <= 125e6
    assert latency_cell(ETHERNET).network == "googlenet"


def test_tables_have_every_cell() -> None:
    table = judge(with_latency=True)
    heads, rows = errors(table)
    assert (len(heads), len(rows)) == (11, 12)
    assert sum(cell.startswith("<") for row in rows for cell in row) == 2
    assert sum(cell.startswith("(") for row in rows for cell in row) == 60
    assert parameters(table)[1][0][1:] == [TWO_COPIES, RING]


def test_our_formats_on_their_clusters() -> None:
    drawn = curves(judge(with_latency=True).clusters, ("dense", "terngrad"), (2, 2500))
    assert len(drawn) == 2 * 3 * 2
    assert {one.setting.topology.workers for curve in drawn for one in curve.forecasts} == {8, 10_000}
    heads, rows = ours(drawn, 10_000)
    assert heads == ["10,000 GPUs", "dense, images/s", "terngrad"]
    assert len(rows) == 6
