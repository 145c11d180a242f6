"""The document of a report: one HTML file with its style, its data and its script inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent / "web"
SCRIPTS = ("chart.js", "report.js")


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
