"""Kernels for GPUs: one launch for a lane and operation, and they compile without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from packing import pack
from thinwire.kernels import Kernels, pick, triton_problem
from thinwire.tensors import Layout, Spec

TOOLS = Path(__file__).parents[2] / "tools"
LAYOUT = Layout.packed([Spec("a", (40, 10)), Spec("b", (33,)), Spec("c", ()), Spec("d", (2, 3, 50))])
COMPILE = """
import gpu_compile
number = [one[0].name for one in gpu_compile.launches()].index("decode_own")
made = gpu_compile.compiled(number, "sm_90")
print(made.registers > 0, made.spills, made.approximate)
"""


@pytest.fixture
def triton() -> Kernels:
    if (problem := triton_problem()) is not None:
        pytest.skip(problem)
    return pick(torch.device("cpu"), "triton")


@pytest.fixture
def launched(triton: Kernels, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were started."""
    from thinwire.kernels.triton import lanes

    names: list[str] = []
    start = lanes.launch

    def note(kernel: Any, grid: Any, *args: Any, **constants: Any) -> None:
        names.append(kernel.__name__)
        start(kernel, grid, *args, **constants)

    monkeypatch.setattr(lanes, "launch", note)
    return names


@pytest.mark.parametrize(
    ("text", "most"),
    [("terngrad", 6), ("qsgd:4", 6), ("topk:0.1", 12), ("sign", 6), ("natural", 6), ("rangefloat:8", 8)],
)
def test_launches_do_not_depend_on_the_number_of_tensors(
    triton: Kernels, launched: list[str], text: str, most: int
) -> None:
    """Encoding, merging, decoding, and what error feedback decodes: few launches for any lane."""
    counts = []
    for layout in (LAYOUT, Layout.packed(LAYOUT.specs[:1])):
        launched.clear()
        x = torch.linspace(-1, 1, layout.numel)
        packed = pack(text, layout, [x], kernels=triton)
        packed.mean(x)
        if text.startswith(("topk", "sign")):
            packed.own(0, x)
        counts.append(len(launched))
    assert counts[0] == counts[1] <= most


@pytest.mark.usefixtures("triton")
def test_top_k_reads_its_numbers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a sample and the candidates: all loads and stores are at most 1.3 times the least possible."""
    monkeypatch.syspath_prepend(TOOLS)
    import gpu_compile  # type: ignore[import-not-found]

    select = [one for one in gpu_compile.operations() if one.name == "select"]
    loaded, stored, launches = gpu_compile.count_bytes(select)["topk.select"]
    assert loaded + stored <= 1.3 * gpu_compile.LEAST["topk.select"]
    assert launches == 2


def test_a_kernel_compiles_without_a_gpu(triton: Kernels) -> None:
    """One, for one target; `make gpu-compile` compiles all of them for all."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, cwd=TOOLS, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[0] == "True 0 ()", done.stderr
