"""The property tests of kernels for GPUs on Triton's interpreter, with many cases: `make test-gpu` runs it.

    python tests/kernels/properties.py                        900 cases for each of the 14 properties
    python tests/kernels/properties.py --family topk sign --cases 2000 --seed 7

A property that has ended is a line of docs/records/gpu-properties.jsonl. Called again, those that hold for
the same kernels are left out (`--again` runs them, too), so a run that was ended goes on where it was. A case
may be a lane without numbers, for which no kernel is started: `launched` counts the others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
RECORD = REPOSITORY / "docs" / "records" / "gpu-properties.jsonl"
KERNELS = REPOSITORY / "src" / "thinwire" / "kernels" / "triton"
SHARED = ("lanes", "fields", "streams", "sums", "words")  # files that several families use
FAMILIES = ("hadamard", "natural", "qsgd", "rangefloat", "sign", "ternary", "topk")
CASES, SEED = 900, 1


def family_of(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_").removesuffix("_kernels")


def digest_of(family: str) -> str:
    """Of the kernels that a record is about: a property ran with these, or it did not run."""
    files = [path for path in KERNELS.glob("*.py") if path.stem.startswith((family, *SHARED))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()


def recorded(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


class Recorder:
    """Takes the properties of the kernels for GPUs, counts their cases, and writes down how they ended."""

    def __init__(self, families: list[str], cases: int, seed: int, record: Path, again: bool) -> None:
        self._families, self._cases, self._seed, self._record, self._again = (
            families,
            cases,
            seed,
            record,
            again,
        )
        self._commit, self._digests = commit(), {family: digest_of(family) for family in families}
        self._counted = {"cases": 0, "launched": 0, "failures": 0}

    def pytest_collection(self) -> None:
        """No database and no shrinking: what a line says follows from its seed, in the time that it says."""
        import lanes
        from hypothesis import Phase, settings  # pytest wants to be the first to import it

        lanes.first_most = max(lanes.SIZES)

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "gpu", deadline=None, max_examples=self._cases, phases=phases, database=None, print_blob=True
        )
        settings.load_profile("gpu")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = () if self._again else {(one["property"], one["kernels"]) for one in self._fine()}
        taken = [item for item in items if self._is_wanted(item) and self._name(item) not in done]
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = taken

    def _is_wanted(self, item: pytest.Item) -> bool:
        """Properties are what hypothesis made, for kernels that are interpreted."""
        given = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        return given and "[triton" in item.name and family_of(item) in self._families

    def _name(self, item: pytest.Item) -> tuple[str, str]:
        family = family_of(item)
        return f"{family}: {item.name.removeprefix('test_').removesuffix('[triton]')}", self._digests[family]

    def _fine(self) -> list[dict[str, Any]]:
        return [one for one in recorded(self._record) if one["failures"] == 0 and one["cases"] >= self._cases]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        self._counted.update(dict.fromkeys(self._counted, 0))
        test = item.function  # type: ignore[attr-defined]
        inner = test.hypothesis.inner_test
        test.hypothesis.inner_test = self._counting(inner)
        began = time.monotonic(), time.process_time()
        outcome = yield
        test.hypothesis.inner_test = inner
        name, digest = self._name(item)
        line = {
            "property": name,
            **self._counted,
            "failed": outcome.excinfo is not None,
            "cpu_s": round(time.process_time() - began[1], 1),
            "seconds": round(time.monotonic() - began[0], 1),
            "seed": self._seed,
            "kernels": digest,
            "commit": self._commit,
        }
        print(line, file=sys.stderr, flush=True)
        with self._record.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _counting(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """`launched`: cases in which a kernel was started; an empty lane starts none."""
        from thinwire.kernels.triton import lanes

        def counted(*args: Any, **kwargs: Any) -> None:
            launch, started = lanes.launch, [False]

            def note(kernel: Any, grid: Any, *args: Any, **constants: Any) -> None:
                started.append(all(grid) if isinstance(grid, tuple) else grid > 0)
                launch(kernel, grid, *args, **constants)

            lanes.launch = note
            self._counted["cases"] += 1
            try:
                test(*args, **kwargs)
            except Exception:
                self._counted["failures"] += 1
                raise
            finally:
                lanes.launch = launch
                self._counted["launched"] += any(started)

        return counted


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--family", nargs="+", choices=FAMILIES, default=FAMILIES, help="the properties of these only"
    )
    parser.add_argument("--cases", type=int, default=CASES, help="of each property (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of hypothesis (default: %(default)s)")
    parser.add_argument("--record", type=Path, default=RECORD, help="where a line is added for a property")
    parser.add_argument("--again", action="store_true", help="also what holds according to the record")
    given = parser.parse_args()
    recorder = Recorder(given.family, given.cases, given.seed, given.record, given.again)
    options = ["-q", "-p", "no:xdist", "--timeout=0", f"--hypothesis-seed={given.seed}", str(HERE)]
    return int(pytest.main(options, plugins=[recorder]))


if __name__ == "__main__":
    sys.exit(main())
