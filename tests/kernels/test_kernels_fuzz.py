"""The short form of `make sanitize`: some damaged payloads to the ordinary build; its own tests."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import branches
import fuzz
import numpy as np
import pytest
from fuzz_calls import DECODERS, ENCODERS, Calls

from thinwire.kernels import native_problem

PAYLOADS = 2500


@pytest.fixture
def native_module() -> ModuleType:
    if native_problem() is not None:
        pytest.skip("there are no native kernels here: thinwire was installed without a compiler")
    return importlib.import_module("thinwire.kernels._native")


def test_decoders_survive_what_is_damaged_and_back_ends_agree(native_module: ModuleType) -> None:
    """In a process of its own: reading where nothing is would end it."""
    folder = str(Path(str(native_module.__file__)).parent)
    command = [sys.executable, str(fuzz.__file__), folder, "--payloads", str(PAYLOADS)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert all(f"{name} " in ended.stdout for name in (*DECODERS, *ENCODERS)), ended.stdout


def test_every_kernel_that_reads_a_payload_is_fuzzed(native_module: ModuleType) -> None:
    families = [family for family in vars(native_module).values() if isinstance(family, type)]
    found = {
        f"{family.__name__.lower()}_{method}"
        for family in families
        for method in vars(family)
        if not method.startswith("_")
    }
    made_of_own_numbers = {"products_orthonormal", "products_eigen"}
    assert found - made_of_own_numbers == {*DECODERS, *ENCODERS}


class Fake:
    """Kernels of one back end; `broken` is what its decoders do."""

    def __init__(self, isa: str, broken: Any = None) -> None:
        self.isa, self.broken = isa, broken

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.broken and self.broken(self.isa, *args)


def fake_native(broken: Any) -> Any:
    made = {family: (lambda isa: Fake(isa, broken)) for family in ("Ternary", "Qsgd", "Sign", "Topk")}
    more = {
        family: (lambda isa: Fake(isa, broken))
        for family in ("Rangefloat", "Fourier", "Products", "Hadamard", "Turned")
    }
    return SimpleNamespace(instruction_sets=lambda: ["good", "bad"], **made, **more)


def raises(isa: str, *args: Any) -> None:
    if isa == "bad":
        raise ValueError("refused by one of two")


def writes(isa: str, *args: Any) -> None:
    if isa == "bad" and args[-1].size:
        args[-1].reshape(-1)[-1] = 1


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (raises, "'good': 'worked', 'bad': 'refused'"),
        (writes, "different bits"),
        (None, "called one way only"),
    ],
)
def test_the_fuzzer_finds(broken: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        fuzz.fuzz(fake_native(broken), payloads=60, seconds=60, seed=0)


def test_payloads_of_the_wrong_length_are_never_right() -> None:
    calls = Calls(0, Fake("good"))
    for name in DECODERS:
        for _ in range(20):
            payload = getattr(calls, name)()[0]
            assert len(fuzz.wrong_length(calls.random, payload)) != len(payload)


def test_nan_is_nan_and_minus_zero_is_not_zero() -> None:
    one, other = (np.array([bits, 0], "u4").view("f4") for bits in (0x7FC00000, 0xFFC00001))
    assert fuzz.same(one, other)
    assert not fuzz.same(one, -one)


def test_branches_count_all_instances_of_what_was_entered() -> None:
    """A template with two instances, one of them never entered; and a function nobody entered."""
    report = json.loads(
        """{"functions": [{"name": "a<1>", "start_line": 1, "execution_count": 2},
                          {"name": "a<2>", "start_line": 1, "execution_count": 0},
                          {"name": "encode", "start_line": 9, "execution_count": 0}],
            "lines": [{"line_number": 2, "function_name": "a<1>",
                       "branches": [{"count": 2, "throw": false}, {"count": 0, "throw": true}]},
                      {"line_number": 2, "function_name": "a<2>",
                       "branches": [{"count": 0, "throw": false}]},
                      {"line_number": 10, "function_name": "encode",
                       "branches": [{"count": 0, "throw": false}]}]}"""
    )
    functions = {f["name"]: ("x.h", f["start_line"]) for f in report["functions"]}
    source = branches.Source("avx2", "x.h", functions, {("x.h", 1)}, report["lines"])
    count = branches.coverage([source])["x.h", "avx2"]
    assert (count.taken, count.total, count.missed) == (1, 2, {2})
    assert branches.untouched([source]) == ["x.h:9"]
