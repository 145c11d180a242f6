"""What all tests share: the option --data, the kernels and devices here, the hypothesis profiles."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault(
    "TRITON_INTERPRET", "1"
)  # kernels for GPUs run on CPU tensors; before Triton is imported

import pytest
import torch
from hypothesis import Phase, settings

from thinwire.kernels import Kernels, backends, pick, triton_problem

NATIVE: list[str | None] = [name for name in backends() if name != "reference"]
DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# The examples are the same in every run; `--hypothesis-profile=long` looks for new ones. Only that one makes
# a failing example smaller: with Triton's interpreter this takes longer than a test may take.
AS_FOUND = [phase for phase in Phase if phase is not Phase.shrink]
settings.register_profile(
    "thinwire", deadline=None, max_examples=25, derandomize=True, print_blob=True, phases=AS_FOUND
)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("thinwire")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder with the data sets; tests that need it skip otherwise",
    )


@pytest.fixture(scope="session")
def data_dir(request: pytest.FixtureRequest) -> Path:
    """The folder with the data sets: what --data names, else ../shared/data beside the repository."""
    given: Path | None = request.config.getoption("--data")
    if given is not None and not given.is_dir():
        raise pytest.UsageError(f"--data {given}: there is no such folder")
    folder = given or DEFAULT_DATA
    if not folder.is_dir():
        pytest.skip("no data sets here: name their folder with --data DIR")
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests share the machine, and tensors here are too small for several threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=list(backends()))
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Every set of kernels that runs on this machine, the reference included."""
    return backends()[request.param]


@pytest.fixture(scope="session", params=NATIVE or [None])
def native(request: pytest.FixtureRequest) -> Kernels:
    """Every native set of kernels."""
    return _named(request.param)


def _named(name: str | None) -> Kernels:
    """A set of kernels; "triton" by its interpreter, on CPU tensors."""
    if name is None:
        pytest.skip("there are no native kernels here: thinwire was installed without a compiler")
    if name != "triton":
        return backends()[name]
    problem = triton_problem()
    if problem is not None:
        pytest.skip(f"kernels for GPUs cannot be compared: {problem}")
    return pick(torch.device("cpu"), "triton")


@pytest.fixture(scope="session", params=[*(NATIVE or [None]), "triton"])
def compared(request: pytest.FixtureRequest) -> Kernels:
    """Every set that must equal the reference: native ones, and those for GPUs."""
    return _named(request.param)


@pytest.fixture(scope="session", params=[*backends(), "triton"])
def every_kernels(request: pytest.FixtureRequest) -> Kernels:
    """The reference, and every set that must equal it."""
    return _named(request.param)


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    return torch.device(request.param)
