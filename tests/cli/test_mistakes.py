"""Mistakes: one clear sentence on standard error, exit code 2, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from printed import Call

MISTAKES = [
    ("train nothing", "unknown task 'nothing': choose one of digits"),
    ("train digits --codec zip", 'no codec "zip"'),
    ("train digits --codec terngrad:clip=much", "much"),
    ("train digits --workers 0", "workers must be at least 1, not 0"),
    ("train digits --model nets", "unknown model 'nets': choose one of digits-cnn"),
    ("train digits --resume no.pt", "no.pt does not exist"),
    ("train digits --rate fast", 'rate "fast" is not understood'),
    ("train digits --rate 10mbit --network wifi", "unknown network 'wifi'"),
    ("train mnist --data nowhere", "data folder nowhere does not exist"),
    ("compare digits --codecs=", "no codec named"),
    ("compare digits --codecs ddp,ddp", "name one twice"),
    ("compare digits --seeds 0", "--seeds must be at least 1"),
    ("report nowhere", "run folder nowhere does not exist"),
    ("plan alexnet --codec zip", 'no codec "zip"'),
    ("plan nets", 'there is no network "nets": did you mean "lenet"?'),
    ("bench kernels --codecs zip", 'no codec "zip"'),
    ("bench kernels --backend cuda", 'kernels "cuda" cannot run here'),
    ("bench exchange --codecs zip", 'no codec "zip"'),
    ("bench exchange --rate fast", 'rate "fast" is not understood'),
    ("bench exchange --pipeline maybe", '--pipeline "maybe" must be one of on, off, both'),
    ("bench step --hooks zip", 'no codec "zip"'),
    ("bench step --hooks ddp-bucket:big", "needs a size in MB"),
    ("bench step --model nets", "unknown model 'nets'"),
    ("bench step --rate fast", 'rate "fast" is not understood'),
    ("bench digests --codecs zip", 'no codec "zip"'),
    ("bench memory --hooks zip", 'no codec "zip"'),
    ("study errors --tasks nothing", "unknown task"),
    ("study errors --methods zip", "no method"),
    ("study errors --bits two", "must be numbers above 0"),
    ("study errors --bits 0", "must be numbers above 0"),
    ("study errors --tasks digits --steps 3", "at least 20"),
    ("study formats --tasks mnist --data nowhere", "data folder nowhere does not exist"),
    ("netlab --latency 5 -- true", 'latency "5" cannot be made: write a round trip of 1ms to 1s'),
    ("netlab", "no command given: write it after --"),
    ("netlab --rate 100 -- true", '"100"'),
    ("netlab --hosts 0 -- true", "0 hosts: ask for 1 to 250"),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_mistakes_are_one_sentence_and_leave_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = call(*line.split())
    assert (printed.code, printed.out) == (2, "")
    assert printed.err.startswith("thinwire: ")
    assert printed.err.count("\n") == 1, printed.err
    assert sentence in printed.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_unwritable_folder_is_found_before_training(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    printed = call("train", "digits", "--network", "loopback", "--out", str(tmp_path / "file"))
    assert printed.code == 2
    assert "cannot be made" in printed.err


@pytest.mark.parametrize(
    "words",
    [("--codec", "terngrad:clip=much"), ("--model", "nets"), ("--codec", "topk:0.1 @ schedule=guard:a=1")],
)
def test_options_are_checked_before_data_are_loaded(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("data were loaded")

    monkeypatch.setattr("thinwire_lab.run.session.load_task", never)
    assert call("train", "digits", *words).code == 2


MISSPELT = [
    ("train", "digits", "--codec", "terngard"),
    ("train", "digits", "--codec", "topk:0.1 @ feedback=resid"),
    ("train", "digits", "--rate", "fast"),
    ("compare", "digits", "--codecs", "ddp,terngard"),
    ("plan", "alexnet", "--codec", "terngard"),
    ("bench", "exchange", "--codecs", "terngard"),
    ("bench", "kernels", "--codecs", "terngard"),
    ("bench", "digests", "--codecs", "terngard"),
    ("bench", "step", "--hooks", "ddp-best,terngard"),
    ("bench", "step", "--rate", "fast"),
]
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from thinwire.cli import main
for words in WORDS:
    sys.argv = ["thinwire", *words]
    try:
        main()
    except SystemExit as end:
        print(end.code, "torch" in sys.modules and sys.modules["torch"] is not None)
"""


def test_misspelt_names_cost_no_torch() -> None:
    """One sentence each, before anything slow is imported; all in one process."""
    code = WITHOUT_TORCH.replace("WORDS", repr(MISSPELT))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["2 False"] * len(MISSPELT), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(MISSPELT)
    assert all(line.startswith("thinwire: ") for line in lines)
