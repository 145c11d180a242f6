"""A study: subjects are trained, their gradients looked at, and what was found is written to a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from thinwire_lab.report.record import PICTURE, ROWS, Origin, describe, make_folder, write_text
from thinwire_lab.run.session import remove_if_empty
from thinwire_lab.study.errors import TARGETS, Finding, find_errors
from thinwire_lab.study.formats import FormatError, measure_formats
from thinwire_lab.study.methods import METHODS, Method
from thinwire_lab.study.recording import Tell, record
from thinwire_lab.study.report import write_error_report, write_format_report
from thinwire_lab.study.snapshot import Snapshot
from thinwire_lab.study.subject import StudySubject


@dataclass(frozen=True)
class Study:
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
    ) -> tuple[list[Finding], Path]:
        """The error study: all methods at equal bits."""
        folder = make_folder(self.out, "study-errors")
        try:
            findings: list[Finding] = []
            for snapshot in self._snapshots(tell):
                tell(f"compressing {snapshot.name}", 0, 1)
                findings.append(find_errors(snapshot, methods, targets))
                self._write_rows(folder, [row for finding in findings for row in finding.rows()])
            write_error_report(findings, self._origin("Compression errors on real gradients"), folder)
            if self.picture:
                from thinwire_lab.study.error_picture import write_error_picture

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
