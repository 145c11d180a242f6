"""The sections of a report with plots: words, and the empty boxes into which the page's script draws."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from thinwire_lab.report.page import heading, paragraph

STEP = ("compute", "wait", "agree", "encode", "travel", "merge", "decode")  # as a step is drawn
LOWEST, HIGHEST = 6, 11  # of the slider: 1 Mbit/s to 100 Gbit/s, as powers of ten


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


def strengths() -> list[str]:
    """How strong the codecs were over time."""
    note = (
        "Runs without a control are drawn where their codec drops a part of the numbers, as it always does."
    )
    return [
        heading("Strength of the codec over time"),
        paragraph(note, quiet=True),
        _boxes("strengths"),
    ]


def _choice(name: str, data: dict[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    """One of the codecs that have an entry; rather the first codec than the baseline."""
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
