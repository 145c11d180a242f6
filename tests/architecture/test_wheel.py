"""The core's wheel holds the core, and works where there is nothing but torch and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_BYTES = 1_500_000  # of the wheel: kernels for three instruction sets, and Python
ALLOWED = {"thinwire", "thinwire-0"}  # the package and its metadata
# Without the editable install, and without what the other packages need.
ALONE = """
import importlib.abc, importlib.metadata, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"typer", "rich", "thinwire_lab",
                                      "thinwire_private", "cryptography"}:
            raise ImportError(f"{name} is not here")
sys.meta_path[:] = [Refuse(), *(f for f in sys.meta_path if "Redirecting" not in type(f).__name__)]
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **by: () if "thinwire" in by.get("group", "") else found(**by)
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import thinwire as tw
assert WHEEL in tw.__file__, tw.__file__
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
with tw.compress(model, "terngrad", keep_dense=()) as compressor:
    model(torch.randn(4, 64)).sum().backward()
assert compressor.report().ratio > 0
for name in ("auto", "qsgd:4"):
    tw.compress(DistributedDataParallel(torch.nn.Linear(64, 64)), name).close()
from thinwire.cli import main
main(["plan", "resnet50", "--nodes", "4"])
main(["plan", "googlenet"])
main(["doctor", "--no-link"])
try:
    main(["private", "demo"])
except SystemExit as end:
    assert end.code == 2
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without native code, which is the same in all wheels and takes a minute."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    options = ["--config-settings=wheel.cmake=false", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run([*build, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_holds_the_core_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition(".")[0] for name in names} == ALLOWED
    assert {"thinwire/__init__.pyi", "thinwire/py.typed", "thinwire/codecs/terngrad.py"} <= set(names)
    assert wheel.stat().st_size < MOST_BYTES


def test_it_works_with_torch_and_numpy_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = ALONE.replace("WHEEL", repr(str(tmp_path)))
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "install thinwire-private" in done.stderr
