"""A study of gradients: trains its subjects, measures every snapshot, writes rows, tables and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch

from thinwire_lab.report.drawing import inline_svg
from thinwire_lab.report.page import facts, heading, page, paragraph, table
from thinwire_lab.report.record import PICTURE, REPORT, ROWS, Origin, describe, make_folder, write_text
from thinwire_lab.run.session import remove_if_empty
from thinwire_lab.study.errors import (
    BREAK_EVEN,
    TARGETS,
    WHITE_IN_FREQUENCY,
    WHITE_IN_PLACE,
    FormatError,
    GradientErrors,
    find_errors,
    measure_formats,
)
from thinwire_lab.study.figures import error_figure, layer_figure, subjects_of, write_error_picture
from thinwire_lab.study.findings import (
    correlation_table,
    error_table,
    format_table,
    markdown,
    missed_note,
    verdict,
)
from thinwire_lab.study.methods import METHODS, Method, Snapshot
from thinwire_lab.study.subject import StudySubject, Tell, record

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


@dataclass(frozen=True)
class GradientStudy:
    """What is trained, where the data are, and where the results go.

    Rows are written after every snapshot: a failure or Ctrl-C loses nothing that was finished.
    """

    subjects: Sequence[StudySubject]
    out: Path
    data: Path | None = None
    picture: bool = False
    command: str = ""  # as typed, for the report

    def errors(
        self,
        methods: Sequence[Method] = tuple(METHODS.values()),
        targets: Sequence[float] = TARGETS,
        tell: Tell = lambda *_: None,
    ) -> tuple[list[GradientErrors], Path]:
        """The error study: all methods at equal bits."""
        folder = make_folder(self.out, "study-errors")
        try:
            findings: list[GradientErrors] = []
            for snapshot in self._snapshots(tell):
                tell(f"compressing {snapshot.name}", 0, 1)
                findings.append(find_errors(snapshot, methods, targets))
                self._write_rows(folder, [row for finding in findings for row in finding.rows()])
            write_error_report(findings, self._origin("Compression errors on real gradients"), folder)
            if self.picture:
                write_error_picture(findings, folder / PICTURE)
        except BaseException:
            remove_if_empty(folder)
            raise
        return findings, folder

    def formats(self, tell: Tell = lambda *_: None) -> tuple[list[FormatError], Path]:
        """The format study: range floats against other formats of as many bits."""
        folder = make_folder(self.out, "study-formats")
        try:
            errors: list[FormatError] = []
            for snapshot in self._snapshots(tell):
                errors += measure_formats(snapshot)
                self._write_rows(folder, [error.row() for error in errors])
            write_format_report(errors, self._origin("Number formats on real gradients"), folder)
        except BaseException:
            remove_if_empty(folder)
            raise
        return errors, folder

    def _snapshots(self, tell: Tell) -> Iterator[Snapshot]:
        torch.set_num_threads(1)  # sums of floats depend on it: results must not depend on the machine
        for subject in self.subjects:
            yield from record(subject, self.data, tell)

    def _origin(self, title: str) -> Origin:
        return describe(title, self.command, "none", self.subjects[0].recipe.to_dict())

    def _write_rows(self, folder: Path, rows: Sequence[dict[str, Any]]) -> None:
        write_text(folder / ROWS, "".join(f"{json.dumps(row)}\n" for row in rows))


def write_error_report(findings: Sequence[GradientErrors], origin: Origin, folder: Path) -> None:
    """report.html and tables.md of the error study."""
    parts = [f"<h1>{escape(origin.title)}</h1>", paragraph(METHOD_NOTE, quiet=True)]
    texts = [METHOD_NOTE]
    for subject in subjects_of(findings):
        own = [finding for finding in findings if finding.subject == subject]
        note = f"{missed_note(own)} {tensors_note(own[0])}".strip()
        parts += [heading(subject), paragraph(verdict(own)), table(*error_table(own)), paragraph(note, True)]
        texts += [f"## {subject}", verdict(own), markdown(error_table(own)), note]
    parts += [heading("Error against bits"), inline_svg(error_figure(findings))]
    parts += [heading("Why"), paragraph(WHY_NOTE, quiet=True), table(*correlation_table(findings))]
    parts += [inline_svg(layer_figure(findings))]
    texts += ["## Why", WHY_NOTE, markdown(correlation_table(findings))]
    _write(folder, origin, parts, texts)


def write_format_report(errors: Sequence[FormatError], origin: Origin, folder: Path) -> None:
    """report.html and tables.md of the format study."""
    parts = [f"<h1>{escape(origin.title)}</h1>", paragraph(FORMAT_NOTE, quiet=True)]
    texts = [FORMAT_NOTE]
    for subject in dict.fromkeys(error.subject for error in errors):
        cells = format_table([error for error in errors if error.subject == subject])
        parts += [heading(subject), table(*cells)]
        texts += [f"## {subject}", markdown(cells)]
    _write(folder, origin, parts, texts)


def tensors_note(finding: GradientErrors) -> str:
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
