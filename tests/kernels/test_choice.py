"""Which kernels are taken, and what happens without native ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

from thinwire.errors import CodecError
from thinwire.kernels import backends, native_problem, pick
from thinwire.kernels.choice import look_again

CPU = torch.device("cpu")


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installation without the extension module: importing it fails."""
    monkeypatch.setitem(sys.modules, "thinwire.kernels._native", None)
    look_again()
    yield
    monkeypatch.undo()
    look_again()


def test_the_reference_is_always_there_and_last() -> None:
    assert list(backends())[-1] == "reference"
    assert all(kernels.name == name for name, kernels in backends().items())


def test_the_best_kernels_come_first() -> None:
    assert pick(CPU) is next(iter(backends().values()))
    assert pick(CPU, "reference").name == "reference"


def test_a_gpu_that_is_not_there_and_other_devices_have_the_reference() -> None:
    if not torch.cuda.is_available():
        assert pick(torch.device("cuda")).name == "reference"
    assert pick(torch.device("meta")).name == "reference"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A GPU of compute capability 9.0, as far as torch tells."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    look_again()
    yield monkeypatch
    monkeypatch.undo()
    look_again()


def test_a_gpu_has_the_kernels_in_triton(gpu: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    assert pick(torch.device("cuda")).name == "triton"


def test_an_old_gpu_has_the_reference_and_says_so_once(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.warns(UserWarning, match=r"compute capability 7\.5, and the kernels need 8\.0"):
        assert pick(torch.device("cuda")).name == "reference"
    assert pick(torch.device("cuda")).name == "reference"  # a second warning would be an error


def test_triton_may_be_missing(gpu: pytest.MonkeyPatch) -> None:
    gpu.setitem(sys.modules, "triton", None)
    with pytest.warns(UserWarning, match=r"Triton is missing: install \"thinwire\[gpu\]\""):
        assert pick(torch.device("cuda")).name == "reference"
    with pytest.raises(CodecError, match='kernels "triton" cannot run here: Triton is missing'):
        pick(CPU, "triton")


def test_triton_may_be_too_old(gpu: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    gpu.setattr(triton, "__version__", "3.4.0")
    with pytest.warns(UserWarning, match=r"Triton 3\.4\.0 is older than 3\.9"):
        assert pick(torch.device("cuda")).name == "reference"


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(CodecError, match=r'kernels "abacus" cannot run here: use one of .*reference'):
        pick(CPU, "abacus")


@pytest.mark.usefixtures("without_native")
def test_without_a_compiler_it_says_so_once() -> None:
    assert native_problem()
    with pytest.warns(UserWarning, match="runs on its reference kernels.*Install a C\\+\\+ compiler"):
        assert pick(CPU).name == "reference"
    assert pick(CPU).name == "reference"  # a second warning would be an error
    assert list(backends()) == ["reference"]


def test_the_environment_may_name_the_best_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = list(backends())
    for best in everything:
        monkeypatch.setenv("THINWIRE_KERNELS", best)
        look_again()
        assert list(backends()) == everything[everything.index(best) :]
    monkeypatch.setenv("THINWIRE_KERNELS", "abacus")
    look_again()
    with pytest.raises(CodecError, match='THINWIRE_KERNELS="abacus" cannot run here: use one of'):
        backends()
    monkeypatch.undo()
    look_again()
