"""bench, plan and doctor: tables for people, rows for programs; the smallest sizes that run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from printed import Call
from torch.distributed import TCPStore

from forked_workers import worker_server

TINY = ("--rate", "10gbit", "--network", "emulated", "--repeats", "1", "--json")


def test_kernels(call: Call) -> None:
    words = ("bench", "kernels", "--numel", "4096", "--repeats", "2", "--codecs", "dense,terngrad")
    dense, terngrad = call(*words, "--json").rows()
    assert (dense["codec"], terngrad["codec"]) == ("dense", "terngrad")
    assert (dense["bits_per_element"], round(terngrad["bits_per_element"], 1)) == (32, 1.6)
    assert terngrad["encode_x_copy"] > 0
    assert "encode vs reference" in call(*words).out


@pytest.mark.usefixtures("forked_workers")
def test_exchange_and_its_timeline(call: Call, tmp_path: Path) -> None:
    sizes = (
        "--hosts",
        "2",
        "--numel",
        "4096",
        "--codecs",
        "dense,terngrad",
        "--trace",
        str(tmp_path / "t.json"),
    )
    rows = call("bench", "exchange", *TINY, *sizes).rows()
    assert [row["codec"] for row in rows] == ["torch-allreduce", "dense", "terngrad"]
    assert all(low <= row["time_ms"] <= high for row in rows for low, high in [row["time_ms_quartiles"]])
    assert rows[2]["planned_bytes_per_worker"] < rows[1]["planned_bytes_per_worker"]
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.usefixtures("forked_workers")
def test_step(call: Call) -> None:
    """With one host: nothing travels, all else is as it is."""
    words = ("--hosts", "1", "--model", "digits-cnn", "--batch", "2", "--hooks", "ddp,terngrad")
    rows = call("bench", "step", *TINY, *words).rows()
    assert [row["hook"] for row in rows] == ["none", "ddp", "ddp-again", "terngrad"]
    assert rows[1]["speedup_vs_ddp"] == 1.0
    assert rows[0]["floor_ratio"] == 1.0


def test_digests(call: Call) -> None:
    words = ("bench", "digests", "--codecs", "dense")
    rows = call(*words, "--json").rows()
    assert [(row["codec"], row["world"], row["resumed"]) for row in rows] == [
        ("dense", world, True) for world in (1, 2, 4)
    ]
    table = call(*words).out
    assert all(row["digest"] in table for row in rows)


def test_plan_shows_bytes_at_both_ends(call: Call) -> None:
    words = ("plan", "digits-cnn", "--codec", "topk:0.01 @ schedule=guard feedback=none")
    text = call(*words).out
    assert "schedule guard:" in text
    assert "at compression level 0" in text
    rows = call(*words, "--json").rows()
    assert {row["feedback"] for row in rows[:-1]} == {"none"}
    assert rows[-1]["bytes_per_worker_at_level_0"] > 50 * rows[-1]["bytes_per_worker"] / 10


def test_doctor(call: Call) -> None:
    [found] = call("doctor", "--no-link", "--json").rows()
    assert {"thinwire", "torch", "kernels", "terngrad speed", "netlab"} <= found.keys()
    assert "link" not in found


@pytest.mark.usefixtures("forked_workers")
def test_doctor_probes_two_workers(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (row,) = call("doctor", "--probe", "--codecs", "terngrad", "--json").rows()
    assert row["world"] == 2
    assert set(row["speeds"]) == {"terngrad", "dense", "dense sharded"}
    assert len(list((tmp_path / "thinwire").iterdir())) == 1


def test_doctor_probes_the_group_of_torchrun(tmp_path: Path) -> None:
    """One worker of it prints; the calibration is cached for the runs of this group."""
    doctor = [sys.executable, "-m", "thinwire", "doctor", "--probe", "--codecs", "terngrad", "--json"]
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # as torchrun's agent has it
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    workers = [
        worker_server().start(doctor, {**env, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")
    ]
    said = [worker.stdout.read().decode() for worker in workers]
    assert [worker.wait(600) for worker in workers] == [0, 0], said
    for worker in workers:
        worker.stdin.close()
        worker.stdout.close()
    (row,) = [json.loads(line) for line in "".join(said).splitlines() if line.startswith("{")]
    assert row["world"] == 2
    assert set(row["speeds"]) == {"terngrad", "dense", "dense sharded"}
    assert len(list((tmp_path / "thinwire").iterdir())) == 1
