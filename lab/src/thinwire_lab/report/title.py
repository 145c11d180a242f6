"""The title of a record, short enough for a page's head."""

from __future__ import annotations

from thinwire.texts.words import counted
from thinwire_lab.report.record import Record

LONGEST = 60  # characters


def title_of(record: Record) -> str:
    """The title as it was given, or how many codecs were compared if that fits on no line."""
    title = record.origin.title
    num_codecs = len({outcome.asked for outcome in record.outcomes})
    return title if len(title) <= LONGEST else f"{counted(num_codecs, 'codec')} on {_task(record)}"


def _task(record: Record) -> str:
    recipe = record.origin.recipe
    return f"{recipe['task']} ({recipe['model']})"
