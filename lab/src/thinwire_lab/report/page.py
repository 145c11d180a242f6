"""A page: HTML that needs nothing but itself: text, tables and figures in one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent / "web"
SCRIPTS = ("chart.js", "report.js")
STEP = ("compute", "wait", "agree", "encode", "travel", "merge", "decode")  # as a step is drawn
LOWEST, HIGHEST = 6, 11  # of the slider: 1 Mbit/s to 100 Gbit/s, as powers of ten
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1f2937;
       background: #fff; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 62rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .4rem; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
.quiet { color: #6b7280; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0 1rem; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: #6b7280; font-size: .85rem;
     border-bottom: 2px solid #e5e7eb; }
td { text-align: right; border-bottom: 1px solid #eef0f3; }
th, td { padding: .42rem .7rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
table.headline td:first-child { white-space: normal; overflow-wrap: anywhere; }
table.reasons td, table.reasons th { text-align: left; }
table.headline td { font-size: 1.08rem; }
table.headline td:first-child { font-weight: 600; }
.wide { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
details summary { cursor: pointer; color: #374151; margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; }
dt { color: #6b7280; } dd { margin: 0; overflow-wrap: anywhere; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: #f3f4f6;
       padding: .1em .35em; border-radius: 4px; }
"""


def document(title: str, parts: Sequence[str], data: dict[str, Any]) -> str:
    """A page that needs nothing but itself; the script finds the data and draws them into the parts."""
    scripts = [f"<script>\n{_asset(name)}</script>" for name in SCRIPTS]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_asset('page.css')}</style>",
            "</head><body>",
            *parts,
            f'<script type="application/json" id="data">{_json(data)}</script>',
            *scripts,
            "</body></html>\n",
        ]
    )


def _asset(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


def _json(data: dict[str, Any]) -> str:
    """JSON in which no name can end the script's element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@dataclass(frozen=True)
class TableCell:
    """A text and what it is sorted by; `chip` is a colour before it, `codec` lets the script fill it."""

    text: str
    value: float | str
    chip: str = ""
    codec: int | None = None

    def html(self) -> str:
        """The cell as an element."""
        chip = f'<span class="chip" style="background:{self.chip}"></span>' if self.chip else ""
        codec = "" if self.codec is None else f' data-codec="{self.codec}"'
        return f'<td data-value="{escape(str(self.value))}"{codec}>{chip}{escape(self.text)}</td>'


def sortable_table(heads: Sequence[str], rows: Sequence[Sequence[TableCell]], kind: str) -> str:
    """The table; without its script it is a table like any other."""
    head = "".join(f'<th aria-sort="none">{escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(cell.html() for cell in row) + "</tr>" for row in rows)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inner}</table></div>'


def controls(data: dict[str, Any]) -> str:
    """The bar that stays in sight: a legend that hides codecs, and the link's speed."""
    buttons = "".join(
        f'<button type="button" data-codec="{number}" aria-pressed="true">{_chip(codec["colour"])}'
        f"{escape(codec['name'])}</button>"
        for number, codec in enumerate(data["codecs"])
    )
    slider = f'<input id="rate" type="range" min="{LOWEST}" max="{HIGHEST}" step="0.1">'
    link = f'<label for="rate">link speed</label>{slider}<output id="rate-text"></output>'
    return f'<div class="bar"><div class="legend">{buttons}</div><div class="link">{link}</div></div>'


def learning(metric: str) -> list[str]:
    """Score and loss, each against steps, bytes and time."""
    return [
        heading(f"Test {metric}"),
        paragraph(
            "Against steps: what compression does to learning. Against bytes: what they buy. Against time at "
            "the chosen link speed: what you wait. Time is computing, coding, agreeing and waiting as "
            "recorded plus every byte over the link, with nothing overlapping: at the link of the runs no "
            "less than what was measured. Thin lines are single seeds.",
            quiet=True,
        ),
        _boxes("score-steps", "score-bytes", "score-time"),
        heading("Training loss"),
        paragraph("Of worker 0, recorded at every step; a mean over the last 4 % of the run.", quiet=True),
        _boxes("loss-steps", "loss-bytes", "loss-time"),
    ]


def stages(data: dict[str, Any]) -> list[str]:
    """One step of every codec, stage after stage."""
    return [
        heading("One step, stage by stage"),
        paragraph(
            "Compute is the forward and backward pass and the update, without waiting for gradients. "
            "Travel follows the slider; the other stages are as recorded on worker 0. Wait is what the bytes "
            "do not explain of the exchange: latency, slower workers.",
            quiet=True,
        ),
        _stage_names(data, STEP),
        _boxes("stages"),
    ]


def history(data: dict[str, Any]) -> list[str]:
    """Stages through training, of a codec to be chosen."""
    return [
        heading("Stages through training"),
        paragraph(
            "As measured, on worker 0. Stages of the exchange run beside the backward pass; wait is what "
            "it did not hide. Agree and travel include waiting for slower workers.",
            quiet=True,
        ),
        f'<div class="choices">{_choice("history-codec", data, data["history"])}</div>',
        _stage_names(data, tuple(data["stages"])),
        _boxes("history"),
    ]


def layers() -> list[str]:
    """Errors and bytes of the largest layers, a dot for each codec."""
    note = (
        "The largest layers that are compressed. Relative error: |g - Q(g)| / |g| of worker 0's payload, "
        "before memory mends it. Bytes are all that one worker sends for a layer in a step."
    )
    return [
        heading("Layer by layer"),
        paragraph(note, quiet=True),
        _boxes("layer-errors", "layer-bytes"),
    ]


def histograms(data: dict[str, Any]) -> list[str]:
    """Gradients through training, of a codec and a layer to be chosen."""
    note = (
        "Grey: worker 0's own gradient before it was sent. Line: the mean of all workers as it came back. "
        "Heights are square roots; what lies beyond the ends counts in the last bins."
    )
    return [
        heading("Gradients through training"),
        paragraph(note, quiet=True),
        f'<div class="choices">{_choice("histogram-codec", data, data["histograms"])}'
        '<select id="histogram-layer" aria-label="layer"></select></div>',
        '<div class="plots small" id="histograms"></div>',
    ]


def levels() -> list[str]:
    """How strong the codecs were over time."""
    note = (
        "Runs without a control are drawn where their codec drops a part of the numbers, as it always does."
    )
    return [
        heading("Strength of the codec over time"),
        paragraph(note, quiet=True),
        _boxes("levels"),
    ]


def _choice(name: str, data: dict[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    """A menu of the codecs that have an entry; the first codec after the baseline is selected."""
    names = [data["codecs"][entry["codec"]]["name"] for entry in entries]
    shown = min(1, len(names) - 1)
    options = "".join(
        f'<option value="{k}"{" selected" * (k == shown)}>{escape(name)}</option>'
        for k, name in enumerate(names)
    )
    return f'<select id="{name}" aria-label="codec">{options}</select>'


def _stage_names(data: dict[str, Any], names: Sequence[str]) -> str:
    inner = "".join(f"<span>{_chip(data['stages'][name])}{name}</span>" for name in names)
    return f'<div class="stages">{inner}</div>'


def _boxes(*names: str) -> str:
    inner = [f'<div class="plot" id="{name}"></div>' for name in names]
    return f'<div class="plots">{"".join(inner)}</div>'


def _chip(colour: str) -> str:
    return f'<span class="chip" style="background:{colour}"></span>'


def page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML document without scripts; figures are SVG elements among its parts."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head><body>",
            *parts,
            "</body></html>\n",
        ]
    )


def heading(text: str) -> str:
    """The head of a section."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, quiet: bool = False) -> str:
    """A paragraph of plain text."""
    return f'<p class="quiet">{escape(text)}</p>' if quiet else f"<p>{escape(text)}</p>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "plain") -> str:
    """A table whose first column is text and whose other columns are figures."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inner}</table></div>'


def details(summary: str, inner: str) -> str:
    """Something long, folded away."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"


def facts(pairs: Sequence[tuple[str, str]], code: Sequence[str] = ()) -> str:
    """Names and values; values named in `code` are set as code."""

    def value(name: str, text: str) -> str:
        return f"<code>{escape(text)}</code>" if name in code else escape(text)

    inner = "".join(f"<dt>{escape(name)}</dt><dd>{value(name, text)}</dd>" for name, text in pairs)
    return f"<dl>{inner}</dl>"
