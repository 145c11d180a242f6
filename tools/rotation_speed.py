"""Times the rotation of a gradient of 26 MB beside `copy_`, forwards and back, in turns; one thread.

python tools/rotation_speed.py [--repeats 40]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from thinwire.kernels import backends

NUMEL, SIZE = 6_553_600, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    x = torch.randn(NUMEL, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    table = torch.tensor([0, NUMEL, 0, 0, SIZE, 0])
    keys, factors = torch.tensor([5, 7], dtype=torch.int32), torch.rand(NUMEL // SIZE)
    for name, kernels in backends().items():
        if name == "reference":
            continue
        acts = {
            "copy_": lambda: y.copy_(x),
            "forward": lambda k=kernels: k.hadamard.forward(x, table, keys, factors, SIZE, y),
            "inverse": lambda k=kernels: k.hadamard.inverse(x, table, keys, factors, SIZE, y),
        }
        times: dict[str, list[float]] = {act: [] for act in acts}
        for _ in range(repeats + 1):
            for act, call in acts.items():
                start = time.perf_counter()
                call()
                times[act].append(time.perf_counter() - start)
        median = {act: 1e3 * statistics.median(found[1:]) for act, found in times.items()}
        shown = ", ".join(f"{act} {ms:.2f} ms ({ms / median['copy_']:.2f}x)" for act, ms in median.items())
        print(f"{name}: {shown}")


if __name__ == "__main__":
    main()
