"""The report: one self-contained HTML file (and on demand a PNG) about a record."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from thinwire.errors import LabError
from thinwire.texts import counted
from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report import page as plots
from thinwire_lab.report.costs import exchange_runs
from thinwire_lab.report.page import (
    TableCell,
    details,
    document,
    facts,
    heading,
    paragraph,
    sortable_table,
    table,
)
from thinwire_lab.report.page_data import Values, page_data
from thinwire_lab.report.record import PICTURE, REPORT, Record, RunOutcome, write_text
from thinwire_lab.report.summary import (
    VARIED,
    ComparedCodec,
    byte_count,
    compare_outcomes,
    fewer,
    headline,
    pace,
    score,
    title_of,
)

ALLOWED_LOSS = {ACCURACY: 0.005}  # by how much a score may be worse and still count as retained; of others:
ALLOWED_BITS = 0.03


def write_report(record: Record, folder: Path, picture: bool = False) -> Path:
    """Write report.html, and report.png if a picture is wanted, into the run folder."""
    if not record.outcomes:
        raise LabError(f"{folder} has no finished run to report on: run the command again")
    data = page_data(record)
    write_text(folder / REPORT, document(title_of(record), _sections(record, data), data))
    if picture:
        from thinwire_lab.report.pictures import write_picture

        write_picture(record, folder / PICTURE)
    return folder / REPORT


def _sections(record: Record, data: Values) -> list[str]:
    return [
        *_top(record, data),
        plots.controls(data),
        *plots.learning(record.outcomes[0].metric),
        *_schedule(record, data),
        *plots.stages(data),
        *(plots.history(data) if data["history"] else []),
        *_layers(record, data),
        *(plots.histograms(data) if data["histograms"] else []),
        *_origin(record),
    ]


def _top(record: Record, data: Values) -> list[str]:
    recipe, lines = record.origin.recipe, compare_outcomes(record.outcomes)
    count = lines[0].seeds
    what = (
        f"{recipe['model']} on {recipe['task']}, {counted(recipe['workers'], 'worker')}, "
        f"batch {recipe['batch']} each, "
    )
    where = f"links of {recipe['rate']}" if recipe["rate"] else "no link emulated"
    seeds = "one seed, so no spread" if count == 1 else f"mean ± standard deviation over {count} seeds"
    return [
        '<button type="button" class="theme" id="theme" aria-label="light or dark">&#9680;</button>',
        f"<h1>{escape(title_of(record))}</h1>",
        paragraph(
            f"{what}{where}; {counted(record.outcomes[0].steps, 'step')} per run; {seeds}.", quiet=True
        ),
        *([paragraph(sentence)] if (sentence := verdict(lines, bool(recipe["rate"]))) else []),
        _headline(lines, data),
        paragraph(
            f"Bytes are what one worker sends per step: {sources(record.outcomes)}. "
            "Step time, as measured, leaves out start-up and evaluation; the last column follows the "
            f"slider. {_against(lines)}",
            quiet=True,
        ),
    ]


def _headline(lines: list[ComparedCodec], data: Values) -> str:
    """The table that sums the comparison up, and for each codec how long its run takes at the chosen link."""
    heads, texts = headline(lines)
    rows = []
    for number, (line, cells) in enumerate(zip(lines, texts, strict=True)):
        ratios = [line.dense_ratio] if len(lines) == 1 else [line.ratio]
        speedups = [] if len(lines) == 1 else [line.speedup.mean]
        values = [line.score.mean, line.bytes_per_step, *ratios, line.step_ms.mean, *speedups]
        first = TableCell(cells[0], line.codec, chip=data["codecs"][number]["colour"])
        others = [TableCell(text, value) for text, value in zip(cells[1:], values, strict=True)]
        rows.append([first, *others, TableCell("-", 0.0, codec=number)])
    return sortable_table([*heads, "run at link speed"], rows, kind="headline")


def _against(lines: list[ComparedCodec]) -> str:
    if len(lines) == 1:
        return "Fewer than fp32 ring: against the computed bytes of a ring all-reduce of fp32 gradients."
    return f"Ratio and speed-up are against {lines[0].codec}."


def verdict(lines: list[ComparedCodec], slowed: bool = True) -> str:
    """One sentence about the second of two codecs or, of more, the thriftiest that learns like the first.

    Without a `slowed` link fewer bytes save no time, so the speed of steps is not mentioned.
    """
    if len(lines) < 2:
        return ""
    base, other = lines[0], (lines[-1] if len(lines) == 2 else thriftiest(lines))
    if other is base:
        return f"No codec retained the {base.metric} of {base.codec} with fewer bytes."
    several = base.seeds > 1
    scores = f"{score(other.metric, other.score, several)} against {score(base.metric, base.score, several)}"
    steps = f" and its steps were {pace(other.speedup)}" if slowed else ""
    missing = "" if slowed else " No link was slowed: the page's slider shows the time that bytes save."
    sent = f"{other.codec} sent {fewer(other.ratio)} bytes than {base.codec}{steps}"
    return f"{sent}; {other.metric} {scores}.{missing}"


def thriftiest(lines: list[ComparedCodec]) -> ComparedCodec:
    """Of the codecs whose score is about that of the first, or better, the one with the fewest bytes."""
    base = lines[0]
    sign, room = (1, ALLOWED_LOSS[base.metric]) if base.metric in ALLOWED_LOSS else (-1, ALLOWED_BITS)
    retained = [line for line in lines if sign * (line.score.mean - base.score.mean) >= -room]
    return min(retained, key=lambda line: line.bytes_per_step)


def sources(outcomes: Sequence[RunOutcome]) -> str:
    """Where the bytes of each codec come from, e.g. "computed (ddp); thinwire's meter (terngrad)"."""
    codecs: dict[str, list[str]] = {}
    for outcome in outcomes:
        named = codecs.setdefault(outcome.bytes_source, [])
        if outcome.asked not in named:
            named.append(outcome.asked)
    if len(codecs) == 1:
        return next(iter(codecs))
    return "; ".join(f"{source} ({', '.join(named)})" for source, named in codecs.items())


def _schedule(record: Record, data: Values) -> list[str]:
    """Compression levels over time, if a run had a schedule."""
    if data["levels"] is None:
        return []
    runs = [run for run in record.outcomes if (run.report or {}).get("schedule")]
    return [*plots.levels(), *map(_changes_table, runs)]


def _changes_table(outcome: RunOutcome) -> str:
    changes = (outcome.report or {})["changes"]
    rows = [[str(change["step"]), f"{change['compression_level']:.4g}", change["why"]] for change in changes]
    return details(f"{outcome.label}: {len(rows)} changes", table(["step", "level", "why"], rows, "reasons"))


def _layers(record: Record, data: Values) -> list[str]:
    tables = "".join(map(_layer_table, exchange_runs(record)))
    return [*plots.layers(), details("All layers, codec by codec", tables)] if data["layers"] else []


def _layer_table(outcome: RunOutcome) -> str:
    heads = ["layer", "elements", "codec", "bytes/step", "bits/element", "relative error"]
    layers = (outcome.report or {})["layers"]
    rows = [
        [
            str(layer["name"]),
            f"{layer['numel']:,}",
            str(layer["codec"]),
            byte_count(layer["bytes_per_step"]),
            f"{layer['bits_per_element']:.2f}",
            "-" if layer["relative_error"] is None else f"{layer['relative_error']:.3f}",
        ]
        for layer in layers
    ]
    return details(f"{outcome.label}: {len(rows)} layers", table(heads, rows))


def _origin(record: Record) -> list[str]:
    origin = record.origin
    recipe = ", ".join(
        f"{name} {value}" for name, value in origin.recipe.items() if value is not None and name not in VARIED
    )
    pairs = [
        ("command", origin.command),
        ("date", origin.made),
        ("machine", origin.machine),
        ("network", origin.network),
        ("versions", ", ".join(f"{name} {version}" for name, version in origin.versions.items())),
        ("recipe", recipe),
    ]
    return [heading("How it was made"), facts(pairs, code=("command",))]
