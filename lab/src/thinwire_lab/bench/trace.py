"""A picture of an exchange: what every worker did when, as a Chrome trace or as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORK, WIRE = "work", "on the wire"
COLORS = {
    "agree": "#8172b3",
    "encode": "#4c72b0",
    "travel": "#d9d9d9",
    "merge": "#ccb974",
    "decode": "#55a868",
    WIRE: "#dd8452",
}


@dataclass(frozen=True)
class Bar:
    """One stretch of time on a line: seconds since the exchange began on the first worker."""

    exchange: str
    rank: int
    line: str  # WORK or WIRE
    what: str
    start: float
    end: float
    part: int | None = None

    @property
    def label(self) -> str:
        return self.what if self.part is None else f"{self.what} {self.part}"


def write_trace(path: Path, bars: Sequence[Bar]) -> None:
    """A page if the name ends in .html, else JSON for chrome://tracing or ui.perfetto.dev."""
    text = _page(bars) if path.suffix == ".html" else json.dumps({"traceEvents": chrome_events(bars)})
    path.write_text(text)


def chrome_events(bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """Complete events ("X"), one process for each worker of an exchange, with a thread for each line."""
    processes: dict[tuple[str, int], int] = {}
    events: list[dict[str, Any]] = []
    for bar in bars:
        place = bar.exchange, bar.rank
        if place not in processes:
            processes[place] = len(processes) + 1
            name = {"name": f"{bar.exchange}, worker {bar.rank}"}
            events.append({"ph": "M", "name": "process_name", "pid": processes[place], "args": name})
            for thread, line in enumerate((WORK, WIRE)):
                about = {"ph": "M", "name": "thread_name", "pid": processes[place], "tid": thread}
                events.append({**about, "args": {"name": line}})
        event = {"ph": "X", "name": bar.label, "cat": bar.what, "ts": 1e6 * bar.start}
        place_of = {"pid": processes[place], "tid": int(bar.line == WIRE)}
        events.append({**event, **place_of, "dur": 1e6 * (bar.end - bar.start)})
    return events


def _page(bars: Sequence[Bar]) -> str:
    """All exchanges on the same scale, one under the other: worker by worker, work above wire."""
    span = max((bar.end for bar in bars), default=1.0)
    exchanges = dict.fromkeys(bar.exchange for bar in bars)
    body = "\n".join(_picture(name, [b for b in bars if b.exchange == name], span) for name in exchanges)
    names = "".join(f'<i style="background:{color}"></i>{what} ' for what, color in COLORS.items())
    return _PAGE.format(legend=names, body=body)


def _picture(name: str, bars: Sequence[Bar], span: float) -> str:
    lines = sorted({(bar.rank, bar.line == WIRE) for bar in bars})
    end = max(bar.end for bar in bars)
    rows = []
    for rank, wire in lines:
        own = (b for b in bars if (b.rank, b.line == WIRE) == (rank, wire))
        drawn = "".join(_bar(bar, span) for bar in sorted(own, key=lambda b: b.start))
        rows.append(f"<div class=row><b>worker {rank} {WIRE if wire else WORK}</b><span>{drawn}</span></div>")
    return f"<h2>{_escape(name)}: {1e3 * end:.1f} ms</h2>" + "".join(rows)


def _bar(bar: Bar, span: float) -> str:
    color = COLORS[WIRE] if bar.line == WIRE else COLORS.get(bar.what, "#999999")
    left, width = 100 * bar.start / span, 100 * (bar.end - bar.start) / span
    title = f"{bar.label}: {1e3 * bar.start:.2f} to {1e3 * bar.end:.2f} ms"
    text = "" if bar.part is None else str(bar.part)
    style = f"left:{left:.3f}%;width:{width:.3f}%;background:{color}"
    return f'<u style="{style}" title="{_escape(title)}">{text}</u>'


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>thinwire: timeline of exchanges</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; color: #222 }}
h2 {{ font-size: 1.1em; margin: 1.5em 0 .4em }}
.row {{ display: flex; align-items: center; height: 22px }}
.row b {{ width: 13em; font-weight: normal; color: #555 }}
.row span {{ position: relative; flex: 1; height: 18px; background: #f6f6f6 }}
u {{ position: absolute; height: 100%; font-size: 11px; text-decoration: none; overflow: hidden;
  text-align: center; color: #fff; min-width: 1px; box-shadow: inset -1px 0 #fff8 }}
i {{ display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -2px }}
</style>
<h1>Timeline of exchanges</h1>
<p>All on one scale. Numbers are parts of the gradient. "travel" is a worker waiting for the network;
"on the wire" lasts from the start of a collective until the worker has waited for its end.</p>
<p>{legend}</p>
{body}
</html>
"""
