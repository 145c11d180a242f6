"""The walk of a bucket: every call between modules of thinwire, from DDP's hook to the wire and back.

    python tests/architecture/walk.py [codec]

prints the modules in the order in which the bucket first enters them, and the calls between them.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

ROOT = Path(tw.__file__).parent


@dataclass
class Walk:
    """Modules by first entry, and who calls whom; a module is its path below thinwire/."""

    modules: list[str] = field(default_factory=list)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)  # (caller, callee) to the function called
    over: bool = False
    functions: list[str] = field(default_factory=list)  # by first entry, with their module

    def trace(self, frame: FrameType, event: str, _: object) -> None:
        callee = module_of(frame)
        if event != "call" or callee is None or self.over:
            return
        function = f"{callee}: {frame.f_code.co_qualname}"
        if function not in self.functions and not function.endswith(">"):  # comprehensions, lambdas
            self.functions.append(function)
        caller = next((m for f in _outer(frame) if (m := module_of(f)) is not None), None)
        if callee not in self.modules:
            self.modules.append(callee)
        if caller is not None and caller != callee:
            self.calls.setdefault((caller, callee), frame.f_code.co_qualname)

    def returns(self, order: list[str]) -> list[tuple[str, str]]:
        """Calls to a module that stands above the caller in a list."""
        return [(a, b) for a, b in self.calls if order.index(b) < order.index(a)]


def module_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


def _outer(frame: FrameType) -> list[FrameType]:
    found, outer = [], frame.f_back
    while outer is not None:
        found.append(outer)
        outer = outer.f_back
    return found


def walk_of(codec: str) -> Walk:
    """One step of a small net in a world of one process; lanes are made in the step before."""
    walk, store = Walk(), dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 10))
        model = DistributedDataParallel(net)
        threading.setprofile(walk.trace)  # of the worker thread, which compress starts
        with tw.compress(model, codec, keep_dense=()) as compressor:
            for _ in range(5):  # buckets are rebuilt in the second step
                compressor.wait()
                walk.modules.clear()
                walk.calls.clear()
                walk.functions.clear()
                sys.setprofile(walk.trace)
                model(torch.randn(8, 64)).sum().backward()
                sys.setprofile(None)
            compressor.wait()
            walk.over = True  # what closes the compressor is not part of the walk
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        dist.destroy_process_group()
    return walk


def main() -> None:
    codec = sys.argv[1] if len(sys.argv) > 1 else "topk:0.1"
    walk = walk_of(codec)
    print(f"{codec}: {len(walk.modules)} modules")
    for module in walk.modules:
        print(f"  {module}")
    print(f"{len(walk.functions)} functions:")
    for function in walk.functions:
        print(f"  {function}")
    print("calls:")
    for (caller, callee), name in walk.calls.items():
        back = "   <- back" if walk.modules.index(callee) < walk.modules.index(caller) else ""
        print(f"  {caller} -> {callee}: {name}{back}")


if __name__ == "__main__":
    main()
