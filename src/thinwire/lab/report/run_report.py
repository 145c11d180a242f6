"""The report: one self-contained HTML file (and on demand a PNG) about a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thinwire.errors import LabError
from thinwire.lab.report.comparison import ComparedCodec, compare
from thinwire.lab.report.operation_times import exchange_runs
from thinwire.lab.report.outcome import Outcome
from thinwire.lab.report.page import details, facts, figure_html, heading, page, paragraph, table
from thinwire.lab.report.plots import bars_of_bytes, bars_of_operations, bars_of_time, curves, strengths
from thinwire.lab.report.record import PICTURE, REPORT, Record, write_text
from thinwire.lab.report.strength import controlled
from thinwire.lab.report.tables import byte_count, fewer, headline, pace, score
from thinwire.texts.words import counted

VARIED = ("codec", "seed")  # entries of a recipe in which the runs of one record differ


def write_report(record: Record, folder: Path, picture: bool = False) -> Path:
    """Write report.html, and report.png if a picture is wanted, into the run folder."""
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise LabError('reports are drawn by plotly: run pip install "thinwire[lab]"') from error
    if not record.outcomes:
        raise LabError(f"{folder} has no finished run to report on: run the command again")
    write_text(folder / REPORT, page(record.origin.title, _sections(record)))
    if picture:
        from thinwire.lab.report.picture import write_picture

        write_picture(record, folder / PICTURE)
    return folder / REPORT


def _sections(record: Record) -> list[str]:
    return [
        *_top(record),
        *_learning(record),
        *_control(record),
        *_wire(record),
        *_layers(record),
        *_origin(record),
    ]


def _top(record: Record) -> list[str]:
    origin, lines = record.origin, compare(record.outcomes)
    recipe, count = origin.recipe, lines[0].seeds
    what = (
        f"{recipe['model']} on {recipe['task']}, {counted(recipe['workers'], 'worker')}, "
        f"batch {recipe['batch']} each, "
    )
    where = f"links of {recipe['rate']}" if recipe["rate"] else "no link emulated"
    seeds = "one seed, so no spread" if count == 1 else f"mean ± standard deviation over {count} seeds"
    return [
        f"<h1>{page_title(origin.title)}</h1>",
        paragraph(
            f"{what}{where}; {counted(record.outcomes[0].steps, 'step')} per run; {seeds}.", quiet=True
        ),
        *([paragraph(sentence)] if (sentence := verdict(lines)) else []),
        table(*headline(lines), kind="headline"),
        paragraph(
            f"Bytes are what one worker sends per step: {sources(record.outcomes)}. "
            f"Step time leaves out start-up and evaluation. {_against(lines)}",
            quiet=True,
        ),
    ]


def _against(lines: list[ComparedCodec]) -> str:
    if len(lines) == 1:
        return "Fewer than fp32 ring: against the computed bytes of a ring all-reduce of fp32 gradients."
    return f"Ratio and speed-up are against {lines[0].codec}."


def page_title(title: str) -> str:
    """A title, escaped."""
    from html import escape

    return escape(title)


def verdict(lines: list[ComparedCodec]) -> str:
    """One sentence that says what the comparison of the last codec with the first showed."""
    if len(lines) < 2:
        return ""
    base, other = lines[0], lines[-1]
    several = base.seeds > 1
    scores = f"{score(other.metric, other.score, several)} against {score(base.metric, base.score, several)}"
    return (
        f"{other.codec} sent {fewer(other.ratio)} bytes than {base.codec} and its steps were "
        f"{pace(other.speedup)}; {other.metric} {scores}."
    )


def sources(outcomes: Sequence[Outcome]) -> str:
    """Where the bytes of each codec come from, e.g. "computed (ddp); thinwire's meter (terngrad)"."""
    codecs: dict[str, list[str]] = {}
    for outcome in outcomes:
        named = codecs.setdefault(outcome.bytes_source, [])
        if outcome.asked not in named:
            named.append(outcome.asked)
    if len(codecs) == 1:
        return next(iter(codecs))
    return "; ".join(f"{source} ({', '.join(named)})" for source, named in codecs.items())


def _learning(record: Record) -> list[str]:
    metric = record.outcomes[0].metric
    return [
        heading(f"Test {metric}"),
        paragraph(
            "Left: against steps, what compression does to learning. Right: against time, what you wait.",
            True,
        ),
        figure_html(curves(record, "score")),
        heading("Training loss"),
        figure_html(curves(record, "loss")),
    ]


def _control(record: Record) -> list[str]:
    """How strong the codecs were over time, if anything controlled them."""
    if not controlled(record):
        return []
    note = (
        "Runs without a control are drawn where their codec drops a part of the numbers, as it always does."
    )
    tables = [_changes_table(run) for run in record.outcomes if (run.report or {}).get("control")]
    return [
        heading("Strength of the codec over time"),
        paragraph(note, quiet=True),
        figure_html(strengths(record)),
        *tables,
    ]


def _changes_table(outcome: Outcome) -> str:
    changes = (outcome.report or {})["changes"]
    rows = [[str(change["step"]), f"{change['strength']:.4g}", change["why"]] for change in changes]
    return details(
        f"{outcome.label}: {len(rows)} changes", table(["step", "strength", "why"], rows, "reasons")
    )


def _wire(record: Record) -> list[str]:
    stages = bars_of_operations(record)
    parts = [heading("Bytes on the wire"), figure_html(bars_of_bytes(record))]
    parts += [heading("Time per step"), figure_html(bars_of_time(record))]
    if stages is not None:
        note = (
            "Exchanges run on a thread of their own beside the backward pass, so stages do not add up to the "
            "step time. Agree and travel include waiting for slower workers."
        )
        parts += [heading("Time by stage of the exchange"), paragraph(note, quiet=True), figure_html(stages)]
    return parts


def _layers(record: Record) -> list[str]:
    runs = exchange_runs(record)
    note = "Bytes and bits are all that one worker sends for a layer, on the way out and on the way back."
    tables = map(_layer_table, runs)
    return [heading("Layer by layer"), paragraph(note, quiet=True), *tables] if runs else []


def _layer_table(outcome: Outcome) -> str:
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
