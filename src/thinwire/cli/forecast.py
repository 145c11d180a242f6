"""`thinwire plan` for a cluster: what a step would take, codec by codec."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.cli.table import format_table, split_codecs
from thinwire.codecs.catalog import check_codec_names
from thinwire.errors import LabError
from thinwire.perf.link import Topology, link_named
from thinwire.perf.network import device_named
from thinwire.texts import counted

if TYPE_CHECKING:
    from thinwire.perf.forecast import Setting
    from thinwire.perf.network import Device, Network
    from thinwire.perf.sweep import Range, Row

WAYS = ("best", "flat", "hierarchical")
SWEEPS = ("nodes", "link")
SMALL, LARGE = (
    "alexnet-32",
    "alexnet-224",
)  # the lab's AlexNet and the paper's, where a name must tell them apart


@dataclass(frozen=True)
class Curves:
    """What a sweep shows: a title, words, the headline as cells, and a row of forecasts at every point."""

    title: str
    heading: str
    words: Sequence[str]
    headline: tuple[list[str], list[list[str]]]
    points: Mapping[Any, Sequence[Row]]
    x_name: str
    sources: Sequence[str]


@dataclass(frozen=True)
class Asked:
    """The options of a forecast; None where the default holds."""

    model: str
    nodes: int | None = None
    gpus: int | None = None
    link: str | None = None
    intra: str | None = None
    device: str | None = None
    batch: int | None = None
    examples_per_s: float | None = None
    share: float | None = None
    codecs: str | None = None
    way: str | None = None
    sweep: str | None = None
    out: Path | None = None
    local: str | None = None
    steps: int | None = None
    tokens: float | None = None

    @property
    def is_forecast(self) -> bool:
        """Whether anything of a cluster was asked for; else `plan` shows tensors."""
        return any(value is not None for name, value in vars(self).items() if name != "model")

    def topology(self) -> Topology:
        """Refuses what is no cluster, before anything slow is imported."""
        nodes = 4 if self.nodes is None else self.nodes
        gpus = 1 if self.gpus is None else self.gpus
        return Topology(nodes, gpus, link_named(self.link or "1gbit"), link_named(self.intra or "pcie"))

    def check(self) -> None:
        """Names that are misspelt cost no torch."""
        self.topology()
        self.asked_device()
        for what, value, known in (("way", self.way, WAYS), ("sweep", self.sweep, SWEEPS)):
            if value is not None and value not in known:
                raise LabError(f'there is no {what} "{value}": known are {", ".join(known)}')
        for codec in split_codecs(self.codecs or ""):
            check_codec_names(codec)
        if self.local is None and (self.steps is not None or self.tokens is not None):
            raise LabError("--steps and --tokens are the length of a run with local steps: give --local too")

    def setting(self) -> Setting:
        from thinwire.perf.forecast import Setting

        network = network_asked(self.model).with_batch(self.batch)
        return Setting.of(network, self.topology(), self.asked_device(), self.examples_per_s)

    def asked_device(self) -> Device:
        device = device_named(self.device or "v100")
        return device if self.share is None else device.crowded(self.share)

    def asked_codecs(self) -> tuple[str, ...]:
        """Dense is always among them: it is what the others are set against."""
        from thinwire.perf import local_steps
        from thinwire.perf.forecast import DENSE
        from thinwire.perf.sweep import CODECS

        given = split_codecs(self.codecs or "")
        usual = CODECS if self.local is None else local_steps.CODECS
        return usual if not given else tuple(dict.fromkeys((DENSE, *given)))

    def ways(self) -> tuple[str, ...]:
        return WAYS[1:] if self.way in (None, "best") else (str(self.way),)


def network_asked(name: str) -> Network:
    """A layer table, the user's own, or a model that an installed package adds; "alexnet" is the table."""
    from thinwire.perf.networks import NETWORKS, network_named, read_module

    if name == LARGE:
        return NETWORKS["alexnet"]()
    if name in NETWORKS or ":" in name:
        return network_named(name)
    added = added_models()
    own = "alexnet" if name == SMALL else name
    if own not in added:
        small = [SMALL] if "alexnet" in added else []
        return network_named(name, [*small, *(model for model in added if model != "alexnet")])
    module, example = added[own]()
    return read_module(module, example, name, batch=16)


def added_models() -> Mapping[str, Callable[[], tuple[Any, Any]]]:
    """Models that installed packages add: functions that give a module and an example input."""
    found: dict[str, Callable[[], tuple[Any, Any]]] = {}
    for entry in metadata.entry_points(group="thinwire.models"):
        found |= entry.load()
    return found


def print_forecast(asked: Asked, as_json: bool) -> None:
    """The headline, and the sweep if one was asked for."""
    asked.check()  # names that are misspelt cost no torch
    from thinwire.perf.sweep import compare, node_counts, over_nodes, paying_range

    setting, codecs, ways = asked.setting(), asked.asked_codecs(), asked.ways()
    rows = compare(codecs, setting, ways)
    nodes = over_nodes(codecs, setting, node_counts(setting), ways)
    ranges = {codec: paying_range(codec, nodes) for codec in codecs}
    if as_json:
        for line in _json_rows(asked, setting, ranges, rows, nodes, ways):
            print(json.dumps(line))
        return
    _print_headline(setting, rows, ranges)
    if asked.sweep is not None:
        _print_sweep(asked, setting, codecs, rows, ranges, nodes)


def _swept(
    asked: Asked, setting: Setting, codecs: Sequence[str], nodes: dict[int, list[Row]]
) -> dict[Any, list[Row]]:
    from thinwire.perf.sweep import over_links, usual_links

    if asked.sweep == "link":
        return dict(over_links(codecs, setting, usual_links(setting.topology.inter), asked.ways()))
    return dict(nodes)


def _json_rows(
    asked: Asked,
    setting: Setting,
    ranges: dict[str, Range],
    rows: list[Row],
    nodes: dict[int, list[Row]],
    ways: tuple[str, ...],
) -> list[dict[str, Any]]:
    """One row a codec; with a sweep, one a codec at each of its points."""
    if asked.sweep is not None:
        codecs = [row.forecast.codec for row in rows]
        rows = [row for each in _swept(asked, setting, codecs, nodes).values() for row in each]
    return [_json_row(row, ranges[row.forecast.codec]) for row in rows]


def _json_row(row: Row, pays: Range) -> dict[str, Any]:
    made, topology = row.forecast, row.forecast.setting.topology
    able = made.refusal is None
    return {
        "codec": made.codec,
        "nodes": topology.nodes,
        "gpus": topology.gpus,
        "link": topology.inter.name,
        "step_ms": 1e3 * made.step_s if able else None,
        "speedup_vs_dense": row.speedup if able else None,
        "bytes_per_worker": made.sent_bytes if able else None,
        "pays": row.pays,
        "model": made.setting.network.name,
        "intra": topology.intra.name,
        "way": made.way,
        "examples_per_s": made.examples_per_s if able else None,
        "compute_ms": 1e3 * made.compute_s,
        "codec_ms": 1e3 * made.codec_s,
        "wire_ms": 1e3 * made.wire_s,
        "hidden_ms": 1e3 * made.hidden_s,
        "pays_from_nodes": pays.first,
        "pays_to_nodes": pays.last,
        "phases": {
            phase.name: {"share": phase.share, "step_ms": 1e3 * phase.times.step_s, "bytes": phase.sent_bytes}
            for phase in made.phases
        },
        "refusal": made.refusal,
    }


def heading(setting: Setting, sweep: str | None = None) -> str:
    """What was asked; without what a sweep goes over."""
    network, topology = setting.network, setting.topology
    inside = f" of {counted(topology.gpus, 'GPU')} on {topology.intra.name}" if topology.gpus > 1 else ""
    number = "nodes" if sweep == "nodes" else counted(topology.nodes, "node")
    between = "" if sweep == "link" else f", {topology.inter.name} between nodes"
    return f"{network.name}, {network.numel / 1e6:,.2f} M parameters, {number}{inside}{between}"


def _sources(setting: Setting, rows: Sequence[Row]) -> list[str]:
    """Where every input comes from: nothing here was measured on the cluster."""
    from thinwire.perf.calibration import source_of
    from thinwire.perf.sweep import number

    network, compute = setting.network, setting.compute
    device = setting.speeds.device
    codecs: dict[str, list[str]] = {}
    for row in rows:
        codecs.setdefault(source_of(row.forecast.codec), []).append(row.forecast.codec)
    return [
        f"compute: {number(compute.examples_per_s)} examples a second and GPU, batch {network.batch}, "
        f"an example is one {network.example} ({compute.source}); backward = 2 x forward",
        f"device {device.name}: {device.source}",
        f"link {setting.topology.inter.name}: {setting.topology.inter.source}",
        f"inside {setting.topology.intra.name}: {setting.topology.intra.source}",
        *(f"speed of {', '.join(names)}: {source}" for source, names in codecs.items()),
        f"bytes: exact, from thinwire's own plans, in {counted(len(setting.buckets), 'bucket')} of DDP",
    ]


def _print_headline(setting: Setting, rows: list[Row], ranges: dict[str, Range]) -> None:
    from thinwire.perf.sweep import headline

    print(heading(setting))
    print(format_table(*headline(rows, ranges)))
    for line in _notes(rows):
        print(line)
    print("A forecast from these inputs, none of them measured on your cluster:")
    for source in _sources(setting, rows):
        print(f"  {source}")


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader of the table has to know."""
    from thinwire.perf.forecast import HIERARCHICAL
    from thinwire.perf.sweep import phase_lines

    lines = ["times in ms: step = compute + codec + wire - hidden; MB sent by one worker in a step"]
    if any(row.forecast.way == HIERARCHICAL for row in rows):
        leader = "its leader alone sends to other nodes, which is counted"
        lines.append(f"* hierarchical: raw sums inside a node; {leader}")
        lines.append('  this is tw.compress(model, CODEC, hierarchy="auto"); docs/how-to/hierarchy.md')
    made = [row.forecast for row in rows]
    refused = [f"{one.codec} cannot serve: {one.refusal}" for one in made if one.refusal]
    return [*lines, *phase_lines(rows), *refused]


def _print_sweep(
    asked: Asked,
    setting: Setting,
    codecs: Sequence[str],
    rows: list[Row],
    ranges: dict[str, Range],
    nodes: dict[int, list[Row]],
) -> None:
    from thinwire.perf.sweep import headline, swept

    points = _swept(asked, setting, codecs, nodes)
    x_name = "nodes" if asked.sweep == "nodes" else "link between nodes"
    print("")
    print(format_table(*swept(x_name, points)))
    writers = [entry.load() for entry in metadata.entry_points(group="thinwire.plan.curves")]
    if not writers:
        print("curves are drawn by thinwire's lab, which is not installed: run make setup in a clone")
        return
    stem = f"plan-{setting.network.name.replace(':', '-')}-{asked.sweep}"
    title = f"{heading(setting, asked.sweep)}, {setting.speeds.device.name}: a forecast"
    words = ["A forecast, not a measurement.", *_notes(rows)]
    made = Curves(
        title, heading(setting), words, headline(rows, ranges), points, x_name, _sources(setting, rows)
    )
    for write in writers:
        write(asked.out or Path(), stem, made)
    print(f"curves: {(asked.out or Path()) / stem}.png and {(asked.out or Path()) / stem}.html")
