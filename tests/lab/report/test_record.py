"""Records, comparisons and reports, from made-up runs."""

import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from made_runs import made_record
from thinwire.errors import LabError
from thinwire_lab.report import record as record_module
from thinwire_lab.report.record import Record, make_folder, outcome_from_rows, read_record, write_record
from thinwire_lab.report.run_report import sources, verdict, write_report
from thinwire_lab.report.summary import byte_count, compare_outcomes, headline, pace
from thinwire_lab.spread import Spread


@pytest.fixture
def record() -> Record:
    return made_record()


def test_comparison_takes_ratios_within_a_seed(record: Record) -> None:
    ddp, terngrad = compare_outcomes(record.outcomes)
    assert (ddp.codec, ddp.ratio, ddp.speedup.mean, ddp.seeds) == ("ddp", 1.0, 1.0, 2)
    assert terngrad.ratio == pytest.approx(12)
    assert terngrad.speedup.mean == pytest.approx((100 / 20 + 101 / 21) / 2)
    assert terngrad.score.mean == pytest.approx(0.955)
    assert terngrad.score.deviation == pytest.approx(0.01 / 2**0.5)


def test_table_and_verdict(record: Record) -> None:
    lines = compare_outcomes(record.outcomes)
    heads, rows = headline(lines)
    assert heads == ["codec", "accuracy %", "bytes/step", "ratio", "ms/step", "speed-up"]
    assert rows[0] == ["ddp", "95.50 ± 0.71", "1.20 MB", "1.0x", "100.5 ± 0.7", "1.00x ± 0.00"]
    assert "terngrad sent 12.0x fewer bytes than ddp and its steps were 4.90x faster" in verdict(lines)
    assert verdict(lines[:1]) == ""
    unshaped = verdict(lines, slowed=False)
    assert "terngrad sent 12.0x fewer bytes than ddp; accuracy 95.50" in unshaped
    assert unshaped.endswith("No link was slowed: the page's slider shows the time that bytes save.")


@pytest.mark.parametrize(
    ("mean", "deviation", "words"),
    [
        (4.9, 0.1, "4.90x faster"),
        (0.5, 0.1, "2.00x slower"),
        (0.84, 0.37, "as fast within"),
        (1.0, 0.0, "as fast"),
    ],
)
def test_pace_claims_nothing_below_the_spread(mean: float, deviation: float, words: str) -> None:
    half = deviation / 2**0.5  # of two values the deviation is sqrt(2) times their distance from the mean
    assert pace(Spread.of([mean - half, mean + half])).startswith(words)


def test_sources_of_bytes_are_told_apart(record: Record) -> None:
    assert sources(record.outcomes) == "interface counters"
    ddp, terngrad = replace(record.outcomes[0], bytes_source="computed"), record.outcomes[1]
    assert sources([ddp, terngrad]) == "computed (ddp); interface counters (terngrad)"


def test_single_codec_is_set_against_fp32(record: Record) -> None:
    lines = compare_outcomes([outcome for outcome in record.outcomes if outcome.asked == "terngrad"])
    heads, rows = headline(lines)
    assert "speed-up" not in heads
    assert rows == [["terngrad", "95.50 ± 0.71", "100 kB", "13.0x", "20.5 ± 0.7"]]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (907_836, "908 kB"),
        (1e6, "1.00 MB"),
        (26.2e6, "26.2 MB"),
        (3e9, "3.00 GB"),
    ],
)
def test_byte_count(count: float, text: str) -> None:
    assert byte_count(count) == text


def test_record_is_read_back(record: Record, tmp_path: Path) -> None:
    write_record(tmp_path, record)
    again = read_record(tmp_path)
    assert again.origin == record.origin
    assert again.outcomes == record.outcomes
    assert [row["step"] for row in again.rows["ddp, seed 1"]] == [
        s for s in (5, 10, 15, 20) for _ in range(3)
    ]


class Outside(HTMLParser):
    """Collects everything a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "srcset", "data") + (("href",) if tag == "link" else ())
        self.links += [f"{tag} {value}" for name, value in attrs if name in names]


def test_report_is_self_contained(record: Record, tmp_path: Path) -> None:
    html = write_report(record, tmp_path).read_text()
    page = Outside()
    page.feed(html)
    assert page.links == []
    assert not re.search(r"@import|url\(\s*['\"]?https?:", html.split("</style>")[0])
    for text in (
        "ddp &lt;against&gt; terngrad",
        "fc&lt;1&gt;.weight",
        "thinwire compare digits",
        "stage by stage",
    ):
        assert text in html
    assert "<against>" not in html.replace("\\u003c", "<").split("<body>")[1]
    assert html.count('class="plot"') == 10
    assert len(html) < 100_000


def test_report_of_plain_ddp_has_no_layers(record: Record, tmp_path: Path) -> None:
    plain = Record(record.origin, record.outcomes[:1], record.rows)
    html = write_report(plain, tmp_path).read_text()
    assert "Layer by layer" not in html


def test_picture(record: Record, tmp_path: Path) -> None:
    write_report(record, tmp_path, picture=True)
    assert (tmp_path / "report.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_record_without_runs_has_no_report(record: Record, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no finished run"):
        write_report(Record(record.origin, (), {}), tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("summary.json", "{", r"summary\.json cannot be read"),
        ("summary.json", "[]", "was not written by thinwire"),
        (
            "summary.json",
            '{"format": "thinwire record", "version": 99}',
            "has version 99, this thinwire reads 1",
        ),
        ("summary.json", '{"format": "thinwire record", "version": 1}', "damaged .no entry 'title'"),
        ("rows.jsonl", '{"run": "a"', r"rows\.jsonl is damaged in line 1"),
        ("rows.jsonl", '{"run": "a", "row": "step"}\n', "damaged in line 1"),
    ],
)
def test_damaged_folders_are_named(
    record: Record, tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    write_record(tmp_path, record)
    (tmp_path / name).write_text(text)
    with pytest.raises(LabError, match=sentence):
        read_record(tmp_path)


def test_missing_folder_and_missing_files(record: Record, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="does not exist"):
        read_record(tmp_path / "no")
    write_record(tmp_path, record)
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(LabError, match=r"rows\.jsonl cannot be read"):
        read_record(tmp_path)


def test_folders_of_one_second_do_not_collide(tmp_path: Path) -> None:
    folders = {make_folder(tmp_path / "runs", "demo") for _ in range(3)}
    assert len(folders) == 3


def test_unusable_folders_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"cannot be made .*--out DIR"):
        make_folder(tmp_path / "file" / "runs", "demo")
    monkeypatch.setattr(record_module, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(LabError, match="MB left, a report needs"):
        make_folder(tmp_path / "runs", "demo")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_full_disk_is_one_sentence(record: Record, tmp_path: Path) -> None:
    (tmp_path / f".rows.jsonl.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(
        LabError, match=r"rows\.jsonl cannot be written .No space left on device.: free some space"
    ):
        write_record(tmp_path, record)
    assert list(tmp_path.iterdir()) == []


def test_run_without_result_is_an_error() -> None:
    with pytest.raises(LabError, match="ended without a result"):
        outcome_from_rows("x", "ddp", "ddp", 0, "accuracy", [])


def test_summary_is_plain_json(record: Record, tmp_path: Path) -> None:
    write_record(tmp_path, record)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["recipe"]["task"] == "digits"
    assert [run["codec"] for run in summary["runs"]] == ["ddp", "terngrad", "ddp", "terngrad"]
