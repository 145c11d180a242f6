"""Timelines: bars as a Chrome trace and as a page."""

from __future__ import annotations

import json
from pathlib import Path

from thinwire_lab.bench.exchange import WIRE, WORK, Bar, chrome_events, write_trace

BARS = [
    Bar("gradiveq:8", 0, WORK, "encode", 0.0, 0.010, 0),
    Bar("gradiveq:8", 0, WIRE, "sum", 0.010, 0.030),
    Bar("gradiveq:8", 1, WORK, "decode", 0.030, 0.040, 0),
    Bar("a <b>", 0, WORK, "agree", 0.0, 0.001),
]


def test_chrome_events() -> None:
    events = chrome_events(BARS)
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["gradiveq:8, worker 0", "gradiveq:8, worker 1", "a <b>, worker 0"]
    bars = [event for event in events if event["ph"] == "X"]
    assert [(bar["name"], bar["tid"]) for bar in bars] == [
        ("encode 0", 0),
        ("sum", 1),
        ("decode 0", 0),
        ("agree", 0),
    ]
    assert bars[1]["ts"] == 10_000
    assert round(bars[1]["dur"]) == 20_000


def test_files(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", BARS)
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == len(chrome_events(BARS))
    write_trace(tmp_path / "t.html", BARS)
    page = (tmp_path / "t.html").read_text()
    assert page.count("<u ") == len(BARS)
    assert "a &lt;b&gt;: 1.0 ms" in page
    assert "left:75.000%;width:25.000%" in page
    assert "http" not in page
