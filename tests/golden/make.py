"""Makes tests/golden/wire.json: the bytes every version of thinwire with this wire version must send.

    python tests/golden/make.py

Run it after a change of the wire format, together with docs/reference/wire.md and src/thinwire/plans/lane.py.
A change that was not meant to alter the bytes must leave the file as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from packing import pack
from thinwire.codecs.stage import Learned
from thinwire.kernels import Kernels
from thinwire.plans.lane import WIRE_VERSION
from thinwire.tensors import Layout, Spec

FILE = Path(__file__).with_name("wire.json")
WORLDS = (2, 4)
STEP = 3  # of seed 0
Shapes = dict[str, tuple[int, ...]]
TERNARY: Shapes = {"layer.weight": (7, 23), "layer.bias": (33,), "scalar": ()}
FLOATS: Shapes = {"layer.bias": (9,), "scalar": ()}
FIELDS: Shapes = {"layer.weight": (7, 23)}  # one granule, so that the file stays small
PAIRS: Shapes = {"layer.bias": (33,), "scalar": ()}  # chunks of 4 and of 1: sums are exact whatever the FFT
MATRIX: Shapes = {"layer.weight": (7, 23)}
SLICES: Shapes = {"layer.weight": (5, 8)}
GRADIVEQ = "gradiveq:4,slice=8,sample=2,compress=50,layers=all"
PHASES = {
    GRADIVEQ: 3,
    f"{GRADIVEQ} >> qsgd:8": 3,
    "powersgd:2,start=1": 1,
    "dgc:0.05,warmup=10": 4,
}  # of which step
CODECS = {
    "terngrad": TERNARY,
    "terngrad:wire=2bit": TERNARY,
    "terngrad:block=64,clip=off": TERNARY,
    "terngrad:scales=own": TERNARY,
    "terngrad:scaler=sigma,clip=1.5": TERNARY,
    "dense": FLOATS,
    "fp16": FLOATS,
    "bf16": FLOATS,
    "qsgd:4": FIELDS,
    "qsgd:3,norm=l2,block=32,scales=own": FIELDS,
    "rangefloat:4": TERNARY,
    "rangefloat:9,mantissa=4,max=0.5": FLOATS,
    "sign": FIELDS,
    "sign:values=scaled,block=64": FIELDS,
    "sign:block=column": FIELDS,
    "topk:0.1": TERNARY,
    "topk:0.4,chunk=20 >> bf16": TERNARY,
    "dgc:0.05,warmup=10": TERNARY,
    "fft:0.7,chunk=4 >> dense": PAIRS,
    "fft:0.85,chunk=16": TERNARY,
    "dct:16 >> topk:0.2 >> rangefloat:10": TERNARY,
    "rotated": TERNARY,
    "rotated:7,block=64": FIELDS,
    "rotate:32 >> qsgd:2,rounding=nearest": FIELDS,
    "powersgd:2,start=1": MATRIX,
    GRADIVEQ: SLICES,
    f"{GRADIVEQ} >> qsgd:8": SLICES,
}


def layout_of(shapes: Shapes) -> Layout:
    return Layout.packed(Spec(name, shape) for name, shape in shapes.items())


def gradient(rank: int, numel: int) -> Tensor:
    """Multiples of 1/512 between -1 and 1, the same on every machine."""
    index = torch.arange(numel, dtype=torch.int64)
    return (((index * 7919 + rank * 104729) % 1009) - 504).to(torch.float32) / 512


def messages(text: str, world: int, kernels: Kernels | None = None) -> dict[str, object]:
    """What is agreed, what every rank sends, and what the owner of everything sends back."""
    layout = layout_of(CODECS[text])
    gradients = [gradient(rank, layout.numel) for rank in range(world)]
    packed = pack(
        text, layout, gradients, STEP, kernels, phase_of=PHASES.get(text, 0), learned=learned_of(text)
    )
    return {
        "agreed": hexed(packed.shared[0].view(torch.uint8)),
        "payloads": [hexed(payload) for payload in packed.payloads],
        "sums": hexed(packed.sums.flatten()),
    }


def learned_of(text: str) -> Learned:
    """A basis of GradiVeQ that no library computed: two rows of a Hadamard matrix, and a mean."""
    if not text.startswith(GRADIVEQ):
        return {}
    signs = torch.tensor(
        [[1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0]]
    )
    mean = torch.arange(8, dtype=torch.float32) / 512
    return {
        "layer.weight": {"basis": (signs.T * 0.375).contiguous(), "mean": mean, "channel": torch.zeros(())}
    }


def hexed(data: Tensor) -> str:
    return bytes(data.tolist()).hex()


def golden(kernels: Kernels | None = None) -> dict[str, object]:
    codecs = {text: {f"world {n}": messages(text, n, kernels) for n in WORLDS} for text in CODECS}
    return {"wire version": WIRE_VERSION, "codecs": codecs}


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden(), indent=1) + "\n")
    print(f"wrote {FILE}")
