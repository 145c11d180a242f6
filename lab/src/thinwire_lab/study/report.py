"""The report of a study: one self-contained HTML file, and its tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.report.page import facts, figure_html, heading, page, paragraph, table
from thinwire_lab.report.record import REPORT, Origin, write_text
from thinwire_lab.study.correlation import BREAK_EVEN, WHITE_IN_FREQUENCY, WHITE_IN_PLACE
from thinwire_lab.study.errors import Finding
from thinwire_lab.study.figures import error_figure, layer_figure, subjects_of
from thinwire_lab.study.formats import FormatError
from thinwire_lab.study.tables import correlation_table, error_table, format_table, markdown, missed_note
from thinwire_lab.study.verdict import verdict

TABLES = "tables.md"
METHOD_NOTE = (
    "Relative error |g - Q(g)| / |g| over all tensors that the default policy compresses, one step, no "
    "memory, at equal bits per element, within 5 %. "
    "fft, dct and topk send what they keep as 10-bit range floats; fft transforms chunks of 4096 numbers, "
    "fft whole each tensor at once. gradiveq is shown at its best: its basis was learnt in the steps right "
    "before, and neither that basis nor the dense steps in which it is learnt are counted in its bits (with "
    "its default of 100 dense steps in 500 it sends 8.0 bit on average where 2 are shown). qsgd is "
    "unbiased, terngrad too but for its clipping, the others are not: errors of unbiased methods "
    "average out over workers and steps."
)
WHY_NOTE = (
    "lag 1: correlation of neighbours in the flattened tensor. The others: the share of the energy in the "
    "15 % strongest bins of the spectrum (of whole tensors, of chunks of 4096) and in the 15 % largest "
    f"elements; white noise has {WHITE_IN_FREQUENCY:.2f} and {WHITE_IN_PLACE:.2f}, and an AR(1) signal "
    f"breaks even at a correlation of about {BREAK_EVEN}. Tensors count as their energy does."
)
FORMAT_NOTE = (
    "Relative error over all tensors that the default policy compresses. Every tensor has its own range "
    "(rangefloat), power-of-two scale (scaled) or step (uniform, to the nearest). Underflow: numbers other "
    "than zero that become zero. Saturation: numbers beyond the largest of the format."
)


def write_error_report(findings: Sequence[Finding], origin: Origin, folder: Path) -> None:
    """report.html and tables.md of the error study."""
    _require_plotly()
    parts = [f"<h1>{escape(origin.title)}</h1>", paragraph(METHOD_NOTE, quiet=True)]
    texts = [METHOD_NOTE]
    for subject in subjects_of(findings):
        own = [finding for finding in findings if finding.subject == subject]
        note = f"{missed_note(own)} {tensors_note(own[0])}".strip()
        parts += [heading(subject), paragraph(verdict(own)), table(*error_table(own)), paragraph(note, True)]
        texts += [f"## {subject}", verdict(own), markdown(error_table(own)), note]
    parts += [heading("Error against bits"), figure_html(error_figure(findings))]
    parts += [heading("Why"), paragraph(WHY_NOTE, quiet=True), table(*correlation_table(findings))]
    parts += [figure_html(layer_figure(findings))]
    texts += ["## Why", WHY_NOTE, markdown(correlation_table(findings))]
    _write(folder, origin, parts, texts)


def write_format_report(errors: Sequence[FormatError], origin: Origin, folder: Path) -> None:
    """report.html and tables.md of the format study."""
    _require_plotly()
    parts = [f"<h1>{escape(origin.title)}</h1>", paragraph(FORMAT_NOTE, quiet=True)]
    texts = [FORMAT_NOTE]
    for subject in dict.fromkeys(error.subject for error in errors):
        cells = format_table([error for error in errors if error.subject == subject])
        parts += [heading(subject), table(*cells)]
        texts += [f"## {subject}", markdown(cells)]
    _write(folder, origin, parts, texts)


def tensors_note(finding: Finding) -> str:
    """Which tensors of a model were looked at."""
    return (
        f"{finding.num_tensors} tensors with {finding.numel:,} elements; {len(finding.dense_names)} others "
        "(biases, norms, embeddings, small tensors, the last layer) stay dense under the default policy."
    )


def _write(folder: Path, origin: Origin, parts: list[str], texts: list[str]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    pairs = [("command", origin.command), ("date", origin.made), ("machine", origin.machine)]
    parts += [heading("How it was made"), facts([*pairs, ("versions", versions)], code=("command",))]
    write_text(folder / REPORT, page(origin.title, parts))
    write_text(folder / TABLES, "\n\n".join(texts) + "\n")


def _require_plotly() -> None:
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise LabError("reports are drawn by plotly: run pip install plotly") from error
