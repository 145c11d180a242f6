"""Branch coverage of the decoders: what gcov counted while the fuzzer called decoders and nothing else.

    python tests/kernels/branches.py build/coverage

A function belongs to the decoders if the run entered it, in any of its instances (templates, back ends); then
all its instances count, also those that the run did not enter. Edges that only exceptions take do not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Place = tuple[str, int]  # a file and the line where a function begins


@dataclass
class Count:
    """Branches of one file in one back end."""

    taken: int = 0
    total: int = 0
    missed: set[int] = field(default_factory=set)  # lines

    def add(self, line: int, taken: int, total: int) -> None:
        self.taken, self.total = self.taken + taken, self.total + total
        if taken < total:
            self.missed.add(line)

    @property
    def share(self) -> float:
        return self.taken / self.total if self.total else 1.0


@dataclass(frozen=True)
class Source:
    """One source file as one object file of one back end saw it."""

    isa: str
    name: str
    functions: dict[str, Place]
    entered: set[Place]
    lines: list[dict[str, Any]]


def sources(folder: Path) -> Iterator[Source]:
    """What gcov says of every object of the kernels; only files of ours."""
    for data in sorted(folder.glob("CMakeFiles/kernels_*.dir/csrc/*.gcda")):
        isa = data.parts[-3].removeprefix("kernels_").removesuffix(".dir")
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(data)]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for file in report["files"]:
            name = Path(file["file"]).name
            if "csrc" in Path(file["file"]).parts:
                functions = {f["name"]: (name, f["start_line"]) for f in file["functions"]}
                entered = {functions[f["name"]] for f in file["functions"] if f["execution_count"]}
                yield Source(isa, name, functions, entered, file["lines"])


def coverage(found: list[Source]) -> dict[tuple[str, str], Count]:
    """By file and back end."""
    entered: set[Place] = set().union(*(source.entered for source in found))
    counts: dict[tuple[str, str], Count] = defaultdict(Count)
    for source in found:
        for line in source.lines:
            if source.functions.get(line.get("function_name", "")) not in entered:
                continue
            branches = [branch["count"] for branch in line["branches"] if not branch["throw"]]
            taken = sum(count > 0 for count in branches)
            counts[source.name, source.isa].add(line["line_number"], taken, len(branches))
    return counts


def lines_of(counts: dict[tuple[str, str], Count]) -> Iterator[str]:
    """A line for every file, and the sum."""
    isas = sorted({isa for _, isa in counts}, reverse=True)
    yield (
        f"{'branches taken':16}" + "".join(f"{isa:>20}" for isa in isas) + "   lines with a branch not taken"
    )
    for name in sorted({name for name, _ in counts}):
        of_file = [counts.get((name, isa), Count()) for isa in isas]
        if any(count.total for count in of_file):
            cells = "".join(f"{f'{c.taken}/{c.total} {c.share:.0%}':>20}" for c in of_file)
            missed = sorted(set().union(*(count.missed for count in of_file)))
            yield f"{name:16}{cells}   {', '.join(map(str, missed))}"
    taken, total = (sum(getattr(count, what) for count in counts.values()) for what in ("taken", "total"))
    yield f"all: {taken:,} of {total:,} branches, {taken / total:.1%}"


def untouched(found: list[Source]) -> list[str]:
    """Functions that were not entered in any instance: encoders, if the fuzzer did its work."""
    entered: set[Place] = set().union(*(source.entered for source in found))
    return sorted(
        {
            f"{file}:{line}"
            for s in found
            for file, line in s.functions.values()
            if (file, line) not in entered
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Branch coverage of the decoders.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--untouched", action="store_true", help="also name the functions that were not entered"
    )
    options = parser.parse_args()
    seen = list(sources(options.folder))
    assert seen, (
        f"no .gcda files below {options.folder}: build with -DTW_COVERAGE=ON and run the fuzzer first"
    )
    print(*lines_of(coverage(seen)), sep="\n")
    if options.untouched:
        print("not entered:", *untouched(seen), sep="\n  ")
