"""thinwire doctor --gpu: bits and speed of every codec on a GPU, and a run on all GPUs of this machine.

Started as `python -m thinwire.cli.gpu PORT RANK WORLD DEVICE CODECS` once for each GPU.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from thinwire.errors import LabError

CODECS = (  # every family of kernels
    "terngrad",
    "qsgd:4",
    "sign",
    "natural",
    "topk:0.01",
    "rangefloat:8",
    "rotated:3",
    "powersgd:4",
    "fft:0.85",
    "fp16",
    "gradiveq:8,sample=2,compress=8,layers=all",
)
SHAPES, STEPS = ((4096, 1024), (1000, 512), (777,)), 6
WORKERS_S = 300.0
FILE = "thinwire-gpu.json"
_SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "Memcpy DtoH")


@dataclass(frozen=True)
class CodecCheck:
    """One codec on one device: whether its means have the CPU's bits, and what a step of the line costs."""

    codec: str
    kernels: str
    same_bits: bool
    gb_per_s: float
    waits_per_step: float  # of the host; -1: nobody counted


@dataclass(frozen=True)
class RunCheck:
    """One codec under DDP on all GPUs: replicas, and bytes against the plan."""

    codec: str
    replicas_equal: bool
    bytes_per_step: float
    planned_bytes: float

    @property
    def good(self) -> bool:
        return self.replicas_equal and self.bytes_per_step == self.planned_bytes


def examine_gpu(as_json: bool, to: str = FILE) -> bool:
    """Everything, as a table or as JSON, and in a file to send to us; whether all of it is good."""
    import torch

    if not torch.cuda.is_available():
        raise LabError("there is no GPU here that torch can use: run this where torch.cuda.is_available()")
    device = torch.device("cuda", 0)
    checks = [check_codec(codec, device) for codec in CODECS]
    runs = run_on_all(torch.cuda.device_count(), "cuda", CODECS)
    copied = copy_speed(device)
    found = {
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "copy_gb_per_s": copied,
        "codecs": [asdict(check) for check in checks],
        "runs": [asdict(run) for run in runs],
    }
    Path(to).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found) if as_json else table(copied, checks, runs))
    if not as_json:
        print(f"{to} has all of this: please attach it to an issue")
    return all(check.same_bits for check in checks) and all(run.good for run in runs)


def check_codec(codec: str, device: Any, shapes: Sequence[tuple[int, ...]] = SHAPES) -> CodecCheck:
    """The whole line of one rank, on the CPU and on a device, with the same gradients."""
    import torch

    expected, _, _, _ = _steps(codec, torch.device("cpu"), shapes)
    found, seconds, waits, kernels = _steps(codec, device, shapes)
    same = all(
        torch.equal(a.view(torch.int32), b.cpu().view(torch.int32))
        for a, b in zip(expected, found, strict=True)
    )
    return CodecCheck(codec, kernels, same, 1e-9 * found[0].nbytes / median(seconds), waits)


def _steps(
    codec: str, device: Any, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[Any], list[float], float, str]:
    """Means, seconds of a step, waits of the host in the last one, and whose kernels ran."""
    import torch

    from thinwire.exchange.engine import Bucket, Engine
    from thinwire.groups.thread import ThreadGroup
    from thinwire.plans.plan import Plan
    from thinwire.plans.policy import Model, Policy
    from thinwire.tensors import Layout, Spec

    specs = tuple(Spec(f"t{index}", shape) for index, shape in enumerate(shapes))
    layout = Layout.packed(specs)
    plan = Plan.of(Policy.of(codec, ()), Model(specs), 1)
    engine = Engine(plan, ThreadGroup.make(1)[0], device, error_every=0)
    means, seconds, waits = [], [], -1.0
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step)
        x = torch.randn(layout.numel, generator=draw).to(device)
        _settle(device)
        start = time.perf_counter()
        if step == STEPS - 1 and device.type == "cuda":
            waits = float(_counted(lambda bucket=Bucket(x, layout): _one(engine, bucket)))
        else:
            _one(engine, Bucket(x, layout))
            _settle(device)
            seconds.append(time.perf_counter() - start)
        means.append(x)
    return means, seconds[1:], waits, engine.context.kernels.name


def _one(engine: Any, bucket: Any) -> None:
    engine.exchange(bucket)
    engine.end_step()


def _counted(act: Any) -> int:
    """How often the host waited, by the profiler."""
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        act()
    return sum(any(word in event.name for word in _SYNCS) for event in profile.events())


def copy_speed(device: Any, numel: int = 1 << 24) -> float:
    """GB/s that copy_ reads, the measure for everything else."""
    import torch

    x = torch.zeros(numel, device=device)
    y, seconds = torch.empty_like(x), []
    for _ in range(6):
        _settle(device)
        start = time.perf_counter()
        y.copy_(x)
        _settle(device)
        seconds.append(time.perf_counter() - start)
    return 1e-9 * x.nbytes / median(seconds)


def _settle(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def table(copied: float, checks: Sequence[CodecCheck], runs: Sequence[RunCheck]) -> str:
    """What a person reads."""
    of_run = {run.codec: run for run in runs}
    lines = [f"copy_ {copied:.1f} GB/s", f"{'codec':<44} {'kernels':<10} bits  GB/s   waits  run"]
    for check in checks:
        run = of_run.get(check.codec)
        told = "-" if run is None else "ok" if run.good else "FAILED"
        bits, waits = "ok" if check.same_bits else "differ", "-" if check.waits_per_step < 0 else ""
        lines.append(
            f"{check.codec:<44} {check.kernels:<10} {bits:<5} {check.gb_per_s:<6.2f} "
            f"{waits or format(check.waits_per_step, 'g'):<6} {told}"
        )
    return "\n".join(lines)


def run_on_all(world: int, kind: str, codecs: Sequence[str]) -> list[RunCheck]:
    """DDP on `world` devices of this machine, one process each; what the first of them found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "thinwire.cli.gpu", str(port)]
    workers = [
        subprocess.Popen(
            [*argv, str(rank), str(world), kind, json.dumps(list(codecs))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        for rank in range(world)
    ]
    try:
        told = [worker.communicate(timeout=WORKERS_S) for worker in workers]
    except subprocess.TimeoutExpired:
        raise LabError(f"a run on {world} devices did not end within {WORKERS_S:g} s") from None
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, trouble) in zip(workers, told, strict=True):
        if worker.returncode:
            raise LabError((trouble.strip().splitlines() or ["a worker failed"])[-1])
    return [RunCheck(**one) for one in json.loads(told[0][0].splitlines()[-1])]


def _worker(port: int, rank: int, world: int, kind: str, codecs: Sequence[str]) -> None:
    import torch
    import torch.distributed as dist

    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    found = [asdict(_trained(codec, device)) for codec in codecs]
    dist.barrier()
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def _trained(codec: str, device: Any) -> RunCheck:
    """Some steps of a small net under DDP; the parameters of all ranks are compared at the end."""
    import torch
    import torch.distributed as dist

    import thinwire

    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(96, 96) for _ in range(3))).to(device)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    compressor = thinwire.compress(model, codec, keep_dense=())
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 96, device=device)).square().mean().backward()
        optimizer.step()
    report, plan = compressor.report(), compressor.plan
    own = torch.cat([p.detach().flatten() for p in net.parameters()])
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    equal = all(torch.equal(other, everyone[0]) for other in everyone)
    planned = sum(plan.step_bytes(step=step) for step in range(3)) / 3
    compressor.close()
    return RunCheck(codec, equal, report.bytes_per_step, planned)


if __name__ == "__main__":
    _worker(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
