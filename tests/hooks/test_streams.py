"""The stream of exchanges: what is given to which stream, in which order, on a device that is none."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from opaque import DEVICE, DeviceModule
from thinwire.hooks.worker import SideStream, Worker

CALLER = "caller's stream"


@pytest.fixture(autouse=True)
def device_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "meta", DeviceModule, raising=False)
    monkeypatch.setattr(DeviceModule, "log", [])


def note(what: str) -> None:
    DeviceModule.log.append((DeviceModule.current(), what))


def test_exchanges_come_behind_gradients_and_before_who_reads_means() -> None:
    """Two exchanges on a worker's thread; what is called behind them is called on their stream."""
    worker = Worker(lambda error: error, stream=SideStream.on(DEVICE))
    for number in range(2):
        note(f"gradients {number}")
        worker.submit(partial(note, f"exchange {number}"), partial(note, f"future {number}"))
    worker.close()
    worker.follow()
    note("optimizer")
    log = DeviceModule.log
    on_side = [what for stream, what in log if stream != CALLER]
    on_caller = [what for stream, what in log if stream == CALLER]
    recorded = [what.split()[1] for what in on_caller if what.startswith("record")]
    done = [what.split()[1] for what in on_side if what.startswith("record")]
    assert on_side == [
        f"wait {recorded[0]}", "exchange 0", f"record {done[0]}", "future 0",
        f"wait {recorded[1]}", "exchange 1", f"record {done[1]}", "future 1",
    ]  # fmt: skip
    assert len({stream for stream, _ in log}) == 2, "buffers are used again: one stream has all exchanges"
    assert on_caller == [
        "gradients 0", f"record {recorded[0]}", "gradients 1", f"record {recorded[1]}",
        f"wait {done[1]}", "optimizer",
    ]  # fmt: skip


def test_who_waits_for_a_job_comes_behind_it() -> None:
    worker = Worker(lambda error: error, stream=SideStream.on(DEVICE))
    worker.call(partial(note, "a state"))
    worker.close()
    (side, recorded), (caller, waited) = DeviceModule.log[-2:]
    assert (caller, waited) == (CALLER, recorded.replace("record", "wait"))
    assert side != CALLER


def test_a_cpu_has_no_stream() -> None:
    assert SideStream.on(torch.device("cpu")) is None
