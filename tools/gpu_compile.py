"""Compiles every kernel for GPUs ahead of time, without one, and counts what it loads and stores.

    python tools/gpu_compile.py           for sm_80, sm_90, sm_100 and gfx942; fails if a register spills
    python tools/gpu_compile.py --page    writes the tables into docs/background/gpu.md, too

Registers, spills and shared memory are what ptxas and LLVM say. Bytes are counted where Triton's interpreter
loads and stores, every access, whether or not a cache would serve it. Neither is a measurement on a GPU.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "background" / "gpu.md"
NUMEL, WORLD = 1 << 16, 4  # of the lane on which bytes are counted
H100 = 3350.0  # GB/s of memory, by its data sheet
POINTERS = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.uint8: "*u8",
}
LEAST = {
    "ternary.scales": 4, "ternary.encode": 4.2, "ternary.add": 0.2 * WORLD + 0.4, "ternary.decode_sum": 4.4,
    "ternary.decode_own": 4.2, "qsgd.scales": 4, "qsgd.encode": 4.5, "qsgd.add": 0.5 * WORLD + 0.8,
    "qsgd.decode_sum": 4.8, "qsgd.decode_own": 4.5, "sign.encode": 4.125, "sign.decode": WORLD / 8 + 4,
    "natural.encode": 5.125, "natural.decode": WORLD * 1.125 + 4, "rangefloat.measure": 4,
    "rangefloat.encode": 5, "rangefloat.decode": WORLD + 4, "topk.select": 4.05, "topk.scatter": 4.2,
    "hadamard.forward": 8, "hadamard.inverse": 8,
}  # fmt: skip
CODECS = {"ternary": "terngrad", "qsgd": "qsgd:4", "sign": "sign", "natural": "natural",
          "rangefloat": "rangefloat:8", "topk": "topk:0.01"}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One call of a family, for a lane of NUMEL numbers; `least`: bytes an element, at least."""

    family: str
    name: str
    arguments: tuple[Any, ...]
    least: float

    @property
    def label(self) -> str:
        """The codec in whose step it is; none: only for error feedback, or beside another codec."""
        return "" if self.name == "decode_own" else CODECS.get(self.family, "")


def operations() -> list[Operation]:
    """What the codecs call in a step."""
    ints = torch.int32
    x = torch.randn(NUMEL, generator=torch.Generator().manual_seed(0))
    keys, one = torch.zeros(2, dtype=ints), torch.ones(1)
    lane, piece = torch.tensor([0, NUMEL, 0, 0, 0, 0]), torch.tensor([0, NUMEL])
    blocks = torch.tensor([0, NUMEL, 0, 0, 512, 0])
    steps = torch.full((NUMEL // 512,), 0.5)

    def raw(bytes_: float) -> torch.Tensor:
        return torch.zeros(int(bytes_), dtype=torch.uint8)

    granules = -(-NUMEL // 160)
    rows = granules * 5
    sums = torch.zeros(-(-rows // 10) * 32, dtype=ints)
    qsums = torch.zeros(-(-NUMEL // 32 // 5) * 32, dtype=ints)
    trits, fours, signs, eights = raw(granules * 32), raw(NUMEL / 2), raw(NUMEL / 8), raw(NUMEL)
    naturals = torch.zeros(NUMEL + NUMEL // 8, dtype=torch.uint8)
    k = NUMEL // 100
    low, high = 6, -(-k * 6 // 8)
    topk = torch.tensor([0, NUMEL, 1, k, low, 0, high, 0, 1])
    indices = torch.zeros(high + (((NUMEL - 1) >> low) + k + 7) // 8, dtype=torch.uint8)
    fits = torch.tensor([0x40A00000, 4], dtype=ints)
    stream, lost = torch.tensor([0, NUMEL, 0]), torch.zeros(2, dtype=torch.int64)
    scale, out = torch.zeros(1, dtype=ints), torch.zeros(NUMEL)
    scales_of = torch.zeros_like(steps, dtype=ints)
    four = one.repeat(WORLD)
    calls = {
        "ternary.scales": (x, lane, 2.5, False, scale, one),
        "ternary.encode": (x, lane, keys, one, one, 5, trits),
        "ternary.add": (trits.repeat(WORLD), WORLD, 5, 10, sums),
        "ternary.decode_sum": (sums, 1, rows, WORLD, 10, lane, one, out),
        "ternary.decode_own": (trits, 5, lane, one, out),
        "qsgd.scales": (x, blocks, False, scales_of),
        "qsgd.encode": (x, blocks, keys, steps, 4, fours),
        "qsgd.add": (fours.repeat(WORLD), WORLD, 4, 5, qsums),
        "qsgd.decode_sum": (qsums, 1, NUMEL // 32, 28, 5, blocks, steps, out),
        "qsgd.decode_own": (fours, 1, 4, blocks, steps, out),
        "sign.encode": (x, lane, False, signs, one, one),
        "sign.decode": (signs.repeat(WORLD), WORLD, lane, four, four, out),
        "natural.encode": (x, stream, keys, naturals),
        "natural.decode": (naturals.repeat(WORLD), WORLD, stream, out),
        "rangefloat.measure": (x, piece, 8, 2, 4, 0, torch.zeros(5, dtype=ints)),
        "rangefloat.encode": (x, piece, fits, 8, eights, lost),
        "rangefloat.decode": (eights.repeat(WORLD), WORLD, piece, fits.repeat(WORLD), 8, 0.25, out),
        "topk.select": (x, topk, indices, torch.zeros(k)),
        "topk.scatter": (indices.repeat(WORLD), WORLD, topk, torch.zeros(WORLD * k), 0.25, out),
        "hadamard.forward": (x, blocks, keys, steps, 512, out),
        "hadamard.inverse": (x, blocks, keys, steps, 512, out),
    }
    return [Operation(*name.split("."), made, LEAST[name]) for name, made in calls.items()]


def launches() -> list[tuple[Operation, Any, tuple[Any, ...], int, dict[str, Any]]]:
    """What every operation launches: the kernel, its arguments, warps and constants."""
    from thinwire.kernels.triton import kernels, lanes

    found: list[tuple[Operation, Any, tuple[Any, ...], int, dict[str, Any]]] = []

    def note(kernel: Any, grid: Any, *args: Any, num_warps: int = 4, **constants: Any) -> None:
        found.append((operation, kernel, args, num_warps, constants))

    lanes.launch = note
    made = kernels()
    for operation in operations():
        getattr(getattr(made, operation.family), operation.name)(*operation.arguments)
    return found


@dataclass(frozen=True)
class Compiled:
    """What a compiler says of one kernel on one target."""

    kernel: str
    target: str
    registers: int
    spills: int
    shared: int
    wide_loads: int
    wide_stores: int
    approximate: tuple[str, ...]


def compiled(number: int, target: str) -> Compiled:
    """Compiles one launch."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    operation, kernel, args, num_warps, constants = launches()[number]
    signature, attributes = {}, {}
    for place, (name, value) in enumerate(zip(kernel.arg_names, args, strict=False)):
        if isinstance(value, torch.Tensor):
            signature[name], attributes[(place,)] = POINTERS[value.dtype], [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    source = ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants, attributes)
    options = {"num_warps": num_warps, "enable_fp_fusion": False}
    made = triton.compile(source, target=GPUTarget(*TARGETS[target]), options=options)
    name = f"{operation.family}.{operation.name}: {kernel.__name__.strip('_')}"
    if target.startswith("gfx"):
        text = made.asm["amdgcn"]
        registers, spills = _last(r"\.vgpr_count:\s+(\d+)", text), _last(r"\.vgpr_spill_count:\s+(\d+)", text)
        wide = (len(re.findall(r"_load_dwordx4", text)), len(re.findall(r"_store_dwordx4", text)))
        return Compiled(name, target, registers, spills, made.metadata.shared, *wide, ())
    text = made.asm["ptx"]
    registers, spills = _resources(text, target)
    wide = (len(re.findall(r"ld\.global\S*\.v4", text)), len(re.findall(r"st\.global\S*\.v4", text)))
    approximate = tuple(sorted(set(re.findall(r"\w+\S*\.(?:approx|full|ftz)\S*|\bfma\.\S+", text))))
    return Compiled(name, target, registers, spills, made.metadata.shared, *wide, approximate)


def _last(pattern: str, text: str) -> int:
    return int(re.findall(pattern, text)[-1])


def _resources(ptx: str, target: str) -> tuple[int, int]:
    """Registers, and bytes that spill (stored and loaded), as ptxas counts them."""
    from triton.backends.nvidia.compiler import get_ptxas

    arch = re.findall(r"\.target (\w+)", ptx)[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        command = [get_ptxas(int(TARGETS[target][1])).path, "-v", "--fmad=false"]
        said = subprocess.run(
            [*command, f"--gpu-name={arch}", file, "-o", file.with_suffix(".cubin")],
            check=True, capture_output=True, text=True,
        ).stderr  # fmt: skip
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", said))
    return _last(r"Used (\d+) registers", said), spills


def count_bytes(wanted: list[Operation]) -> dict[str, list[float]]:
    """By operation: bytes loaded and stored an element, and launches; under the interpreter."""
    from triton.runtime import interpreter

    from thinwire.kernels.triton import kernels, lanes

    counts = [0, 0, 0]
    builder = interpreter.InterpreterBuilder
    load, store, launch = builder.create_masked_load, builder.create_masked_store, lanes.launch

    def counted_load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        counts[0] += int(mask.data.sum()) * ptrs.get_element_ty().primitive_bitwidth // 8
        return load(self, ptrs, mask, *rest)

    def counted_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        counts[1] += int(mask.data.sum()) * ptrs.get_element_ty().primitive_bitwidth // 8
        return store(self, ptrs, value, mask, *rest)

    def counted_launch(*args: Any, **constants: Any) -> None:
        counts[2] += 1
        launch(*args, **constants)

    found, made = {}, kernels()
    with (
        mock.patch.object(builder, "create_masked_load", counted_load),
        mock.patch.object(builder, "create_masked_store", counted_store),
        mock.patch.object(lanes, "launch", counted_launch),
    ):
        for operation in wanted:
            counts[:] = [0, 0, 0]
            getattr(getattr(made, operation.family), operation.name)(*operation.arguments)
            name = f"{operation.family}.{operation.name}"
            print(name, counts, file=sys.stderr)
            found[name] = [counts[0] / NUMEL, counts[1] / NUMEL, counts[2]]
    return found


def kernel_table(results: list[Compiled]) -> list[str]:
    """A row for each kernel."""
    lines = [
        "| kernel | registers sm_80 / 90 / 100 | VGPRs gfx942 | spilled | shared memory | 128-bit ld, st |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(one.kernel for one in results):
        own = {one.target: one for one in results if one.kernel == name}
        registers = " / ".join(str(own[t].registers) for t in ("sm_80", "sm_90", "sm_100"))
        spills, here = sum(one.spills for one in own.values()), own["sm_90"]
        lines.append(
            f"| `{name}` | {registers} | {own['gfx942'].registers} | {spills} | {here.shared} | "
            f"{here.wide_loads}, {here.wide_stores} |"
        )
    return lines


def traffic_table(counted: dict[str, list[float]]) -> list[str]:
    """A row for each operation: bytes an element."""
    lines = [
        "| operation | launches | loaded | stored | least possible, both | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for operation in operations():
        name = f"{operation.family}.{operation.name}"
        loaded, stored, count = counted[name]
        ratio = (loaded + stored) / operation.least
        lines.append(
            f"| `{name}` | {count:.0f} | {loaded:.2f} | {stored:.2f} | {operation.least:g} | {ratio:.2f} |"
        )
    return lines


def roofline(counted: dict[str, list[float]]) -> list[str]:
    """By codec: time of all its kernels if memory were the only limit, and the link up to which it pays."""
    lines = [
        "| codec | bytes an element, all | GB/s of gradients | sent, of dense | pays up to a link of |",
        "|---|---|---|---|---|",
    ]
    sent = {"terngrad": 0.2 + 0.4, "qsgd:4": 0.5 + 0.8, "sign": 2 * 0.125, "natural": 2 * 1.125,
            "rangefloat:8": 2 * 1.0, "topk:0.01": 2 * 0.0525}  # fmt: skip
    for label, each_way in sent.items():
        total = 0.0
        for operation in operations():
            if operation.label == label:
                share = WORLD if operation.name == "add" else 1  # an owner adds up its part of the numbers
                loaded, stored, _ = counted[f"{operation.family}.{operation.name}"]
                total += (loaded + stored) / share
        link = (8 - each_way) / total * H100
        lines.append(
            f"| `{label}` | {total:.1f} | {4 / total * H100:.0f} | {each_way / 8:.1%} | {link:.0f} GB/s |"
        )
    return lines


def write_page(name: str, lines: list[str]) -> None:
    """Between the two marks of that name."""
    begin, end = f"<!-- {name}: made by `make gpu-compile` -->", f"<!-- {name}: end -->"
    text = PAGE.read_text()
    before, rest = text.split(begin)
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def main() -> None:
    if "--count" in sys.argv:
        print(json.dumps(count_bytes(operations())))
        return
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--count"]
    counting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    jobs = [(number, target) for number in range(len(launches())) for target in TARGETS]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(compiled, *zip(*jobs, strict=True)))
    counted = json.loads(counting.communicate()[0])
    tables = {
        "kernels": kernel_table(results),
        "bytes": traffic_table(counted),
        "roofline": roofline(counted),
    }
    for name, lines in tables.items():
        print("\n".join(lines), end="\n\n")
        if "--page" in sys.argv:
            write_page(name, lines)
    spilled = [f"{one.kernel} on {one.target}" for one in results if one.spills]
    rough = {f"{one.kernel}: {' '.join(one.approximate)}" for one in results if one.approximate}
    if spilled or rough:
        sys.exit(f"registers spill in {spilled}; not rounded as IEEE 754 wants it: {sorted(rough)}")
    print(
        f"{len(results)} kernels compiled for {', '.join(TARGETS)}: no spills, nothing fused or approximate"
    )


if __name__ == "__main__":
    main()
