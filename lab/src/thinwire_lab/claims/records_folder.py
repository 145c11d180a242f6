"""Where records are: in the repository that this thinwire was installed from, if there is one."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[4]
WITHOUT_REPOSITORY = Path("runs/claims")


def records_folder(asked: Path | None) -> Path:
    """The folder that the user named, else the repository's, else one below the current folder."""
    if asked is not None:
        return asked
    own = REPOSITORY / "docs" / "records"
    return own if own.is_dir() else WITHOUT_REPOSITORY


def hint(folder: Path) -> str:
    """What to tell a user whose folder has no records."""
    if any(folder.glob("*.jsonl")):
        return ""
    return (
        f"There are no records in {folder}. Those of the project are in docs/records of its repository: name "
        "that folder with --records, or make your own with thinwire claims run ID."
    )
