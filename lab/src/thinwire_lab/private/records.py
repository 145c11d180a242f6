"""Records: a finished run is one JSON line (settings, commit, load, result) and is not run again.

The tables of docs/background/private.md are made from records alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from thinwire.errors import PrivateError

FOLDER = Path("docs/records")
Row = dict[str, Any]
Say = Callable[[str], None]
PAGE = Path("docs/background/private.md")
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
Column = tuple[str, Callable[[Row], str]]


@dataclass(frozen=True)
class BenchRecords:
    """The lines of one bench in one file.

    >>> BenchRecords("ladder").path.as_posix()
    'docs/records/private-ladder.jsonl'
    """

    bench: str
    folder: Path = FOLDER

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"private-{self.bench}.jsonl"

    def read(self) -> list[Row]:
        """All lines, the oldest first."""
        if not self.path.exists():
            return []
        try:
            return [json.loads(line) for line in self.path.read_text().splitlines() if line]
        except json.JSONDecodeError as error:
            raise PrivateError(
                f"{self.path} line {error.lineno} is not JSON: remove that line, and the run is repeated"
            ) from None

    def find(self, settings: Mapping[str, Any]) -> Row | None:
        """The newest result of a run with these settings."""
        same = [line["result"] for line in self.read() if line["settings"] == dict(settings)]
        return same[-1] if same else None

    def once(self, settings: Mapping[str, Any], run: Callable[[], Row], again: bool = False) -> Row:
        """The recorded result, or else that of `run()`, which is recorded."""
        if not again and (found := self.find(settings)) is not None:
            return found
        load = round(os.getloadavg()[0], 1)  # of the machine before it: seconds under load are no claim
        result = run()
        line = {"settings": dict(settings), "commit": commit(), "load": load, "result": result}
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return result


def commit() -> str:
    """The commit of this source tree, with a + if it was changed; "unknown" outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


@dataclass(frozen=True)
class BenchOptions:
    """Options of `thinwire private bench`; None: as the bench likes."""

    nets: tuple[str, ...] = ("digits", "resnet8w", "resnet32")
    variants: tuple[str, ...] | None = None
    models: Path | None = None
    data: Path | None = None
    records: Path = FOLDER
    links: tuple[str, ...] | None = None
    repeats: int = 3
    spu: Path | None = None
    again: bool = False

    def once(self, bench: str, settings: Row, run: Callable[..., Row], *arguments: Any) -> Row:
        """The recorded result of a run, or that of `run(*arguments)` now."""
        return BenchRecords(bench, self.records).once(settings, partial(run, *arguments), self.again)


def write_tables(options: BenchOptions, say: Say) -> Iterator[Row]:
    """Print all tables, and put them between the marks of docs/background/private.md where that file is."""
    text = "\n\n".join(filter(None, (table(options.records) for table in TABLES)))
    if PAGE.exists() and BEGIN in (page := PAGE.read_text()):
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
        say(f"{PAGE} has the new tables")
    yield {"text": text}


def ladder_table(folder: Path) -> str:
    """The ladder, one table per network, ratios against B0."""
    found = _newest(folder, "ladder")
    parts = []
    for net in dict.fromkeys(row["net"] for row in found):
        rows = [row for row in found if row["net"] == net]
        base = next((row["bytes"] for row in rows if row["variant"] == "B0"), None)
        columns: list[Column] = [
            ("rung", lambda r: r["variant"]),
            ("bytes", lambda r: f"{r['bytes']:,}"),
            ("MB", lambda r: f"{r['bytes'] / 1e6:.1f}"),
            ("fewer than B0", lambda r, base=base: f"{base / r['bytes']:.2f}x" if base else ""),  # type: ignore[misc]
            ("online MB", lambda r: f"{r['online_bytes'] / 1e6:.1f}" if r["online_bytes"] else ""),
            ("flights", lambda r: str(r["flights"] or "")),
            ("run", lambda r: "computed" if "computed" in r else _kept(r)),
        ]
        parts.append(f"**{net}**, one picture, cold: `thinwire private bench ladder --nets {net}`\n")
        parts.append(_table(columns, rows) + "\n")
    return "### The ladder\n\n" + "\n".join(parts) if parts else ""


def _kept(row: Row) -> str:
    """Whether a run kept its promises: the bytes that were predicted, the logits of the oracle."""
    counted = "bytes as predicted" if row["bytes"] == row["predicted_bytes"] else "BYTES DIFFER"
    return f"{counted}, " + ("bit-equal" if row["mismatches"] == 0 else "LOGITS DIFFER")


def operator_table(folder: Path) -> str:
    """Against SCI."""
    rows = _newest(folder, "operators")
    columns: list[Column] = [
        ("operator", lambda r: r["operator"]),
        ("SiRNN's code", lambda r: f"{r['sci']:g}"),
        ("here, run", lambda r: f"{r['measured']:g}"),
        ("unit", lambda r: r["unit"]),
        ("difference", lambda r: f"{r['difference_percent']:+.2f} %"),
        ("judged", lambda r: "within 2 %" if r["judged"] else "reported"),
    ]
    return _section("SiRNN's operators", "operators", columns, rows)


def latency_table(folder: Path) -> str:
    """Seconds over links; the median of repeats."""
    groups: dict[tuple[str, str, str, float], list[Row]] = {}
    for line in _lines(folder, "latency"):
        settings = line["settings"]
        key = (settings["net"], settings["rung"], settings["rate"] or "unshaped", settings["round_trip_ms"])
        groups.setdefault(key, []).append(line["result"])
    rows: list[Row] = []
    for (net, rung, rate, trip), runs in groups.items():
        seconds = sorted(run["seconds"] for run in runs)
        row = {"net": net, "rung": rung, "rate": rate, "trip": trip, "runs": len(runs), **runs[0]}
        rows.append({**row, "low": seconds[0], "seconds": seconds[len(seconds) // 2], "high": seconds[-1]})
    base = {(r["net"], r["rate"], r["trip"]): r["seconds"] for r in rows if r["rung"] == "B0"}

    def faster(row: Row) -> str:
        slow = base.get((row["net"], row["rate"], row["trip"]))
        return f"{slow / row['seconds']:.1f}x" if slow else ""

    columns: list[Column] = [
        ("network", lambda r: r["net"]),
        ("rung", lambda r: r["rung"]),
        ("rate", lambda r: r["rate"]),
        ("round trip", lambda r: f"{r['trip']:g} ms"),
        ("seconds (range)", lambda r: f"{r['seconds']:.1f} ({r['low']:.1f}-{r['high']:.1f})"),
        ("faster than B0", faster),
        ("online s", lambda r: f"{r['online_seconds']:.1f}"),
        ("MB", lambda r: f"{r['bytes'] / 1e6:.0f}"),
        ("flights", lambda r: str(r["flights"])),
        ("runs", lambda r: str(r["runs"])),
    ]
    return _section("Latency", "latency", columns, rows)


def whole_table(folder: Path) -> str:
    """Whole test sets."""
    columns: list[Column] = [
        ("network", lambda r: r["net"]),
        ("rung", lambda r: r["variant"]),
        ("images", lambda r: str(r["images"])),
        ("logits that differ", lambda r: str(r["mismatches"])),
        ("accuracy", lambda r: f"{100 * r['accuracy']:.2f} %"),
        ("bytes predicted", lambda r: f"{r['predicted_bytes']:,}"),
        ("bytes measured", lambda r: f"{r['bytes']:,}"),
        ("s an image", lambda r: f"{r['seconds_an_image']:.2f}"),
    ]
    return _section(
        "Whole test sets", "digits` and `thinwire private bench cifar10", columns, _newest(folder, "whole")
    )


def rival_table(folder: Path) -> str:
    """SPU beside ours."""
    columns: list[Column] = [
        ("system", lambda r: r["system"]),
        ("first query, MB", lambda r: f"{r['bytes_first'] / 1e6:.2f}" if "bytes" in r else r["failed"]),
        ("next queries, MB", lambda r: f"{r['bytes'] / 1e6:.2f}" if "bytes" in r else ""),
        ("first query, s", lambda r: f"{r['seconds_first']:.2f}" if "bytes" in r else ""),
        ("next queries, s", lambda r: f"{r['seconds']:.2f}" if "bytes" in r else ""),
        ("largest error", lambda r: f"{r['largest_error']:.1g}" if "bytes" in r else ""),
    ]
    return _section(
        "The rival: SPU on the digits CNN", "rival --spu VENV/bin/python", columns, _newest(folder, "rival")
    )


def speed_table(folder: Path) -> str:
    """Convolutions, batches, memory."""
    rows = _newest(folder, "batch")
    columns: list[Column] = [
        ("network", lambda r: r["net"]),
        ("batch", lambda r: str(r["batch"])),
        ("MB an image", lambda r: f"{r['bytes_an_image'] / 1e6:.2f}"),
        ("online MB an image", lambda r: f"{r['online_bytes_an_image'] / 1e6:.2f}"),
        ("s an image", lambda r: f"{r['seconds_an_image']:.2f}"),
        ("peak memory, server / client", lambda r: " / ".join(f"{m:.0f} MB" for m in r["peak_memory_mb"])),
    ]
    return _section("Batches and memory", "batch", columns, rows)


def convolution_table(folder: Path) -> str:
    """Seconds of ResNet-32's convolutions."""
    groups: dict[str, list[Row]] = {}
    for line in _lines(folder, "convolutions"):
        groups.setdefault(line["settings"]["rung"], []).append(line["result"])
    rows = [
        {"rung": rung, "seconds": sorted(run["seconds"] for run in runs), "bytes": runs[0]["bytes"]}
        for rung, runs in groups.items()
    ]
    columns: list[Column] = [
        ("rung", lambda r: r["rung"]),
        ("MB", lambda r: f"{r['bytes'] / 1e6:.0f}"),
        (
            "seconds (range)",
            lambda r: f"{_middle(r['seconds']):.1f} ({r['seconds'][0]:.1f}-{r['seconds'][-1]:.1f})",
        ),
        ("SiRNN's code, extrapolated", lambda r: "19 s"),
        ("faster", lambda r: f"{19 / _middle(r['seconds']):.1f}x"),
    ]
    return _section(
        "Convolutions of ResNet-32 at W4A6, both parties on 2 cores", "convolutions", columns, rows
    )


def fuzz_table(folder: Path) -> str:
    """What the fuzzer did."""
    columns: list[Column] = [
        ("victim", lambda r: r["victim"]),
        ("cases", lambda r: f"{r['cases']:,}"),
        ("refused with a sentence", lambda r: f"{r['refused']:,}"),
        ("harmless", lambda r: f"{r['accepted']:,}"),
        ("slowest", lambda r: f"{r['slowest_s']} s"),
    ]
    return _section("Damaged messages", "fuzz", columns, _newest(folder, "fuzz"))


def large_table(folder: Path) -> str:
    """ResNet-50 on a picture of 224x224."""
    columns: list[Column] = [
        ("network", lambda r: r["net"]),
        ("bytes", lambda r: f"{r['bytes']:,}"),
        ("run", _kept),
        ("seconds", lambda r: f"{r['seconds']:.0f}"),
        ("offline s / online s", lambda r: f"{r['offline_seconds']:.0f} / {r['online_seconds']:.0f}"),
        ("CPU s, server / client", lambda r: " / ".join(f"{s:.0f}" for s in r["cpu_seconds"])),
        ("peak memory, server / client", lambda r: " / ".join(f"{m:.0f} MB" for m in r["peak_memory_mb"])),
        ("least active layer", lambda r: f"{r['least_active']:.0%}"),
    ]
    return _section("A network of real size", "large", columns, _newest(folder, "large"))


def load_table(folder: Path) -> str:
    """Clients that come, go and are killed."""
    names = (
        "net",
        "clients",
        "queries",
        "answered",
        "wrong",
        "killed",
        "failures",
        "sessions_left",
        "seconds",
    )
    columns: list[Column] = [(name.replace("_", " "), lambda r, name=name: str(r[name])) for name in names]  # type: ignore[misc]
    columns.append(
        (
            "server's MB, before and after each quarter",
            lambda r: " / ".join(f"{m:.0f}" for m in r["memory_mb"]),
        )
    )
    return _section("A load on a server", "load", columns, _newest(folder, "load"))


TABLES = (
    ladder_table,
    large_table,
    operator_table,
    whole_table,
    latency_table,
    convolution_table,
    speed_table,
    load_table,
    rival_table,
    fuzz_table,
)


def _lines(folder: Path, bench: str) -> list[Row]:
    """The newest line of every setting, in order of first sight."""
    newest = {str(line["settings"]): line for line in BenchRecords(bench, folder).read()}
    return list(newest.values())


def _newest(folder: Path, bench: str) -> list[Row]:
    return [line["result"] for line in _lines(folder, bench)]


def _section(title: str, command: str, columns: Sequence[Column], rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return f"### {title}\n\n`thinwire private bench {command}`\n\n{_table(columns, rows)}"


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    heads = "| " + " | ".join(name for name, _ in columns) + " |"
    lines = ["| " + " | ".join(show(row) for _, show in columns) + " |" for row in rows]
    return "\n".join([heads, "|" + "---|" * len(columns), *lines])


def _middle(values: Sequence[float]) -> float:
    return values[len(values) // 2]
