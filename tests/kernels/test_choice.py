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


def test_other_devices_run_the_reference() -> None:
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
