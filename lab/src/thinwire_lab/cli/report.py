"""`thinwire report`: the page of one or several run folders, made again, and the picture for a README."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thinwire_lab.cli.options import Json, Picture


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders that train, compare or demo wrote.")],
    json: Json = False,
    png: Picture = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page; default: the run's, of several the one around.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also write this SVG: bytes and score of each codec, for a README.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Let the SVG show the time of a step on such a link, e.g. 100mbit.")
    ] = None,
) -> None:
    """Make report.html from the rows and the summaries in run folders, and print its table.

    Several folders are put on one page if they are about one task. The page needs no network: accuracy and
    loss against steps, bytes and time at a link speed to be chosen, stages, layers, gradients.

    \b
    Examples:
      thinwire report runs/demo-20250101-120000
      thinwire report runs/compare-mnist-* --out pages
      thinwire report runs/compare-mnist-20250101-120000 --picture gain.svg --rate 100mbit
    """
    from thinwire.texts.rate import rate_or_none
    from thinwire_lab.cli.run_output import show_record
    from thinwire_lab.report.headline_picture import write_headline_picture
    from thinwire_lab.report.merged import merge
    from thinwire_lab.report.record import open_folder, read_record
    from thinwire_lab.report.run_report import write_report

    rate = rate_or_none(rate)
    records = {name: read_record(folder) for name, folder in _named(folders).items()}
    record = next(iter(records.values())) if len(records) == 1 else merge(records)
    place = open_folder(out or (folders[0] if len(folders) == 1 else folders[0].parent))
    write_report(record, place, png)
    if picture is not None:
        write_headline_picture(record, picture, rate)
    show_record(record, place, json)


def _named(folders: list[Path]) -> dict[str, Path]:
    """Folders by their last names, or by their paths where two have the same."""
    short = {folder.absolute().name: folder for folder in folders}
    return short if len(short) == len(folders) else {str(folder): folder for folder in folders}
