"""Options behind "@": read, refused before any process starts, and seen in what is planned and reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forked_workers import forked_loopback
from thinwire.errors import ThinwireError
from thinwire_lab.data import load_task
from thinwire_lab.net.network import Loopback
from thinwire_lab.report.costs import controlled, strength_of, strength_rows
from thinwire_lab.report.record import Record, describe, write_record
from thinwire_lab.report.run_report import write_report
from thinwire_lab.run.ddp_exchange import check_codec
from thinwire_lab.run.launch import launch, shared_task
from thinwire_lab.run.recipe import CodecChoice, digits, read_codec_choice


def test_reading() -> None:
    assert read_codec_choice("terngrad:clip=2.5") == CodecChoice("terngrad:clip=2.5")
    assert read_codec_choice("fft:0.9@route=allgather control=epochs:0=1/5=0.5") == CodecChoice(
        "fft:0.9", route="allgather", control="epochs:0=1/5=0.5"
    )
    assert read_codec_choice("auto @ hierarchy=2 quality=safe").options()["hierarchy"] == 2
    assert read_codec_choice("sign @ hierarchy=auto").options()["hierarchy"] == "auto"
    assert "hierarchy" not in read_codec_choice("sign").options()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topk:0.1 @", "nothing stands behind @"),
        ("topk:0.1 @ guard", '"guard" behind @ does not fit'),
        ("topk:0.1 @ seed=3", "one of memory, route, control, bucket"),
        ("topk:0.1 @ bucket=big", "bucket=big must be a size in MB"),
        ("topk:0.1 @ hierarchy=on", "hierarchy=on must be auto, off, or how many workers a node has"),
        ("topk:0.1 @ memory=none memory=residual", "memory is given twice"),
        ("topk:0.1 @ memory=elephant", '"elephant"'),
        ("topk:0.1 @ route=allreduce", 'use route "allgather"'),
        ("topk:0.1 @ control=gard", 'no control "gard"'),
        ("terngrad @ control=guard", "no strength to lower"),
        ("ddp @ control=guard", "takes no options behind @"),
        ("ddp-fp16 @ memory=none", "takes no options behind @"),
    ],
)
def test_wrong_texts_are_refused_before_any_process(text: str, words: str) -> None:
    with pytest.raises(ThinwireError) as caught:
        check_codec(text)
    assert words in str(caught.value)


CODECS = ("topk:0.01 @ memory=none", "topk:0.01 @ memory=none control=guard:window=1,patience=1,gain=0.9")


@forked_loopback()
def test_a_controlled_run_tells_its_strength(tmp_path: Path) -> None:
    """Gains of 90 % a step do not happen: the share falls and is put back, and all pages show it."""
    task = load_task("digits")
    record = Record(describe("a title", "a command", "loopback", {}), (), {})
    with shared_task(task) as folder:
        for codec in CODECS:
            recipe = replace(digits(), codec=codec, workers=2, steps=8, evaluations=2)
            outcome, rows = launch(recipe, task, folder, Loopback(None), lambda row: None)
            origin = describe("a title", "a command", "loopback", recipe.to_dict())
            record = Record(origin, (*record.outcomes, outcome), {**record.rows, outcome.label: rows})
    constant, guarded = record.outcomes
    assert controlled(record)
    assert strength_of(record) == "theta"
    assert {row["theta"] for row in strength_rows(record, constant)} == {0.99}
    thetas = [row["theta"] for row in strength_rows(record, guarded)]
    assert thetas[:3] == [0.99, 0.495, 0.99], "on trial, and put back"
    assert guarded.report is not None
    assert guarded.report["control"] == "guard:window=1,patience=1,gain=0.9"
    assert guarded.bytes_per_step > 5 * constant.bytes_per_step
    write_record(tmp_path, record)
    page = write_report(record, tmp_path, picture=True).read_text()
    assert "Strength of the codec over time" in page
    assert "is no gain on" in page
    assert (tmp_path / "report.png").stat().st_size > 10_000
