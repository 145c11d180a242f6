"""No code of one instruction set is linked into another, and none runs that the machine does not have."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(ROOT.glob("build/cp*/CMakeFiles/kernels_*.dir"))
HIDDEN = re.compile(r"DW\.ref\.")  # a pointer to the run-time library, the same in all objects


def shared_symbols(objects: list[Path], isa: str) -> list[str]:
    """What objects define for others to link against, unless it is named after their instruction set.

    Weak symbols are the danger: inline functions and templates that were not inlined. The linker keeps one of
    several, so that the portable path could run AVX-512 code.
    """
    listing = subprocess.run(
        ["nm", "--demangle", "--extern-only", "--defined-only", *map(str, objects)],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.split(maxsplit=2)[2] for line in listing.stdout.splitlines() if len(line.split()) > 2]
    return [name for name in names if not name.startswith(f"tw::{isa}::") and not HIDDEN.match(name)]


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm here (binutils)")
@pytest.mark.skipif(not FOLDERS, reason="there are no built objects here: `make setup` leaves them in build/")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.stem)
def test_objects_share_no_symbols(folder: Path) -> None:
    objects = sorted(folder.rglob("*.o"))
    assert objects
    assert shared_symbols(objects, folder.stem.removeprefix("kernels_")) == []


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm here (binutils)")
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler here")
def test_a_shared_template_is_found(tmp_path: Path) -> None:
    source = tmp_path / "bad.cpp"
    source.write_text(
        "template <class T> __attribute__((noinline)) T twice(T x) { return x + x; }\n"
        "namespace tw::avx2 { int four(int x) { return twice(twice(x)); } }\n"
    )
    subprocess.run(["c++", "-std=c++17", "-O2", "-c", str(source), "-o", str(tmp_path / "bad.o")], check=True)
    assert shared_symbols([tmp_path / "bad.o"], "avx2") == ["int twice<int>(int)"]


def test_everything_the_build_uses_is_asked_for() -> None:
    """Flags are made of the names in CMakeLists.txt; cpu.h must know each of them."""
    lists = re.findall(r"^\s*tw_kernels\((\w+)((?: \w+)*)\)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    asked = set(re.findall(r'feature == "(\w+)"', (ROOT / "csrc" / "cpu.h").read_text()))
    needed = {isa: features.split() for isa, features in lists}
    assert set(needed) >= {"portable", "avx2", "avx512"}
    assert not needed["portable"]
    for isa, features in needed.items():
        assert set(features) <= asked, isa
