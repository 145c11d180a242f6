"""thinwire doctor: what is installed, which kernels run, and how fast the link between two workers is.

Started as `python -m thinwire.cli.doctor PORT RANK CODECS` in each of two workers of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from statistics import median
from typing import TYPE_CHECKING, Any

from thinwire.cli.table import split_codecs
from thinwire.errors import LabError, ThinwireError

if TYPE_CHECKING:
    from thinwire.groups.torch import TorchGroup
    from thinwire.perf.calibration import Calibration

ABOUT = """Check this machine: versions, kernels and their speed, and the speed of a link.

With --probe it measures, in a few seconds, how long the collectives of a group take, alone and while workers
compute, and how fast codecs are while all workers run; forecasts go by that (performance-model.md).
With --gpu it compares codecs on a GPU with the CPU, bit by bit, and trains on all GPUs of the machine.
Under torchrun --probe is of torchrun's own group, else of two workers of this machine. What it found is kept
in the cache folder for a week."""
EXAMPLES = """examples:
  thinwire doctor
  thinwire doctor --json
  thinwire doctor --gpu
  thinwire doctor --probe --codecs "terngrad,gradiveq:8"
  torchrun --nproc-per-node 4 -m thinwire doctor --probe --json"""
KERNEL_NUMEL, LARGE_BYTES, REPEATS = 1 << 20, 8 << 20, 5
WORKERS_S = 120.0  # what two workers may take
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `good` is False where something is missing that a user may want."""

    name: str
    value: str
    good: bool = True


def run(arguments: Sequence[str]) -> None:
    """The command, with its name first."""
    given = parser().parse_args(arguments[1:])
    if given.gpu:
        from thinwire.cli.gpu import examine_gpu

        if not examine_gpu(given.json):
            raise LabError("a codec does not do on these GPUs what it should: see the table above")
        return
    if given.probe:
        found = _probe(split_codecs(given.codecs))
        if found is not None:
            print(json.dumps(found.to_json()) if given.json else str(found))
        return
    findings = list(examine(not given.no_link))
    if given.json:
        print(json.dumps({finding.name: finding.value for finding in findings}))
        return
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{'ok' if finding.good else '--'} {finding.name:<{width}}  {finding.value}")


def parser() -> argparse.ArgumentParser:
    """Its options."""
    made = argparse.ArgumentParser(
        "thinwire doctor",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--no-link", action="store_true", help="do not measure the link between two workers")
    made.add_argument("--gpu", action="store_true", help="check every codec on the GPUs of this machine")
    made.add_argument("--probe", action="store_true", help="calibrate: collectives and codecs, all at once")
    made.add_argument(
        "--codecs", default="fp16,terngrad,qsgd:4,topk:0.01", help="with --probe: the codecs to measure"
    )
    made.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return made


def examine(measure_link: bool) -> Iterator[Finding]:
    """Everything worth knowing, in the order in which a person asks."""
    import torch

    import thinwire

    yield Finding("thinwire", thinwire.__version__)
    yield Finding("python", f"{platform.python_version()} at {sys.prefix}")
    yield Finding("torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    yield from _packages()
    yield _native()
    yield _kernel_speed()
    if torch.cuda.is_available():
        from thinwire.kernels import pick

        used = pick(torch.device("cuda")).name
        yield Finding("CUDA", f"{torch.cuda.get_device_name()}; kernels: {used} (check them: --gpu)")
    else:
        yield Finding("CUDA", "none; gradients on the CPU", good=False)
    yield _backends()
    for entry in metadata.entry_points(group="thinwire.doctor"):
        yield Finding(*entry.load()())
    if measure_link:
        yield _link()


def _packages() -> Iterator[Finding]:
    for name in ("numpy", "thinwire-private", "thinwire-lab"):
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "not installed", good=False)


def _native() -> Finding:
    from thinwire.kernels import backends, native_problem

    problem = native_problem()
    if problem is not None:
        return Finding(
            "kernels", f"reference only ({problem}): install a C++ compiler, reinstall", good=False
        )
    return Finding("kernels", ", ".join(backends()) + f"; used: {next(iter(backends()))}")


def _kernel_speed() -> Finding:
    """Encoding and decoding of one layer by terngrad, in times of copying it."""
    import torch

    from thinwire.codecs.codec import parse
    from thinwire.codecs.coder import Context
    from thinwire.kernels import pick
    from thinwire.tensors import Key, Layout, Spec

    cpu, x = torch.device("cpu"), torch.randn(KERNEL_NUMEL)
    packer = (
        parse("terngrad")
        .bind(Layout.packed([Spec("layer", (KERNEL_NUMEL,))]), Context(1, 0, cpu, pick(cpu)))
        .packer
    )
    words, copy = torch.zeros(packer.max_words, dtype=torch.int32), torch.empty_like(x)
    payload = torch.zeros(packer.payload_bytes, dtype=torch.uint8)
    packer.maxima(x, words)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    copied = _best_s(lambda: copy.copy_(x))
    encoded = _best_s(lambda: packer.encode(x, words, Key(0, 0, 0), payload))
    decoded = _best_s(lambda: packer.decode_local(payload, words, copy))
    torch.set_num_threads(threads)
    text = f"encode {encoded / copied:.1f}x copy_, decode {decoded / copied:.1f}x copy_ (1 thread)"
    return Finding("terngrad speed", text)


def _best_s(act: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return min(times)


def _backends() -> Finding:
    import torch.distributed as dist

    there = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available}
    found = [name for name, available in there.items() if available()]
    return Finding("torch.distributed", ", ".join(found) or "no backend", good=bool(found))


def _link() -> Finding:
    try:
        speed = _two_workers("")
    except ThinwireError as error:
        return Finding("link", f"not measured: {error}", good=False)
    text = f"{speed['gbit_per_s']:.1f} Gbit/s each way, {speed['latency_ms']:.2f} ms a message"
    return Finding("link", f"loopback, 2 workers: {text}; this says nothing about your network")


def _probe(codecs: tuple[str, ...]) -> Calibration | None:
    """Collective under torchrun, where only the first rank gets it; else of two workers of this machine."""
    from thinwire.perf.calibration import Calibration

    if all(name in os.environ for name in _LAUNCHED):
        return _probe_group(codecs)
    return Calibration.from_json(_two_workers(",".join(f'"{codec}"' for codec in codecs)))


def _probe_group(codecs: Sequence[str]) -> Calibration | None:
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    made = _probed(codecs, device)
    first = dist.get_rank() == 0
    dist.barrier()
    dist.destroy_process_group()
    return made if first else None


def _probed(codecs: Sequence[str], device: Any) -> Calibration:
    from thinwire.groups.torch import TorchGroup
    from thinwire.perf.store import cache_folder, group_name, probe, save

    group = TorchGroup()
    group.connect()
    made = probe(group, device, codecs)
    path = cache_folder() / f"{group_name(group, device)}.json"  # collective
    if group.rank == 0:
        save(made, path)
    group.close()
    return made


def _two_workers(codecs: str) -> Any:
    """Starts two workers on this machine; what the first of them prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-m", "thinwire.cli.doctor", str(port)]
    workers = [
        subprocess.Popen(
            [*argv, str(rank), codecs], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
        )
        for rank in range(2)
    ]
    try:
        told = [worker.communicate(timeout=WORKERS_S) for worker in workers]
    except subprocess.TimeoutExpired:
        raise LabError(f"two workers on this machine did not answer within {WORKERS_S:g} s") from None
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, trouble) in zip(workers, told, strict=True):
        if worker.returncode:
            raise LabError((trouble.strip().splitlines() or ["a worker failed"])[-1])
    return json.loads(told[0][0].splitlines()[-1])


def _worker(port: int, rank: int, codecs: str) -> None:
    """One of two workers: measures the link, or with codecs everything that forecasts go by."""
    import torch
    import torch.distributed as dist

    from thinwire.groups.torch import TorchGroup

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    if codecs:
        found = _probed(split_codecs(codecs), torch.device("cpu")).to_json()
    else:
        group = TorchGroup()
        group.connect()
        small = median(_swap_s(group, group.size) for _ in range(4 * REPEATS))
        large = median(_swap_s(group, LARGE_BYTES) for _ in range(REPEATS))
        bits = 8 * LARGE_BYTES * (group.size - 1) / group.size
        found = {"latency_ms": 1e3 * small, "gbit_per_s": bits / max(large - small, 1e-9) / 1e9}
        group.close()
    dist.barrier()
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def _swap_s(group: TorchGroup, nbytes: int) -> float:
    import torch
    import torch.distributed as dist

    send = torch.zeros(nbytes, dtype=torch.uint8).view(group.size, -1)
    receive = torch.zeros_like(send)
    dist.barrier()
    start = time.perf_counter()
    group.all_to_all(send, receive).wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    _worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
