"""thinwire doctor --gpu, with what can be run without a GPU: the same functions on the CPU, and gloo."""

from __future__ import annotations

import pytest
import torch

from thinwire.cli import doctor, gpu
from thinwire.errors import LabError

SMALL = ((48, 20), (33,))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(LabError, match="there is no GPU here"):
        doctor.run(["doctor", "--gpu"])


@pytest.mark.parametrize("codec", gpu.CODECS)
def test_every_codec_is_checked(codec: str) -> None:
    check = gpu.check_codec(codec, torch.device("cpu"), SMALL)
    assert check.same_bits
    assert check.gb_per_s > 0
    assert check.waits_per_step == -1


def test_a_run_on_all_devices() -> None:
    runs = gpu.run_on_all(2, "cpu", ["terngrad", "topk:0.1"])
    assert [run.codec for run in runs] == ["terngrad", "topk:0.1"]
    assert all(run.good for run in runs), runs


def test_the_table_shows_what_failed() -> None:
    checks = [gpu.CodecCheck("sign", "triton", False, 1.0, 2.0)]
    runs = [gpu.RunCheck("sign", True, 10.0, 12.0)]
    text = gpu.table(100.0, checks, runs)
    for told in ("differ", "FAILED", "copy_ 100.0 GB/s"):
        assert told in text
