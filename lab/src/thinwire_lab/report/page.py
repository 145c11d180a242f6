"""A page: HTML that needs nothing but itself: text, tables and figures in one file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
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
details summary { cursor: pointer; color: #374151; margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; }
dt { color: #6b7280; } dd { margin: 0; overflow-wrap: anywhere; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: #f3f4f6;
       padding: .1em .35em; border-radius: 4px; }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML document; plotly's library is inlined, so it opens without a network."""
    from plotly.offline import get_plotlyjs

    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f"<script>{get_plotlyjs()}</script>",
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


def figure_html(figure: Figure) -> str:
    """A plotly figure; its library is in the page's head."""
    from plotly import io

    config = {"displaylogo": False, "responsive": True, "displayModeBar": False}
    html: str = io.to_html(figure, include_plotlyjs=False, full_html=False, config=config)
    return html
