"""The commands of the lab as a user meets them: options, tables, JSON rows, errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from thinwire.cli.compare import compare
from thinwire.cli.demo import demo
from thinwire.cli.options import split_codecs
from thinwire.cli.report import report
from thinwire.cli.train import train
from thinwire.errors import LabError, ThinwireError
from thinwire.rate import rate_or_none


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer()
    for command in (train, compare, demo, report):
        app.command()(command)
    return app


def call(app: typer.Typer, *words: str) -> Result:
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


SMALL = ("--workers", "2", "--steps", "4")


def test_compare_then_report(app: typer.Typer, tmp_path: Path) -> None:
    result = call(
        app, "compare", "digits", "--codecs", "ddp,terngrad", *SMALL, "--out", str(tmp_path), "--json"
    )
    assert result.exit_code == 0
    ddp, terngrad = (json.loads(line) for line in result.stdout.splitlines())
    assert (ddp["codec"], terngrad["codec"]) == ("ddp", "terngrad")
    assert ddp["bytes_per_step"] == 4 * 151_306
    assert terngrad["ratio"] > 8
    assert terngrad["speedup"]["mean"] > 0
    folder = Path(terngrad["folder"])
    assert {path.name for path in folder.iterdir()} == {"rows.jsonl", "summary.json", "report.html"}
    (folder / "report.html").unlink()
    result = call(app, "report", str(folder))
    assert "terngrad sent" in result.output.replace("\n", " ")
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("command", ["train", "compare", "demo", "report"])
def test_help_shows_examples(app: typer.Typer, command: str) -> None:
    result = call(app, command, "--help")
    assert result.exit_code == 0
    assert f"thinwire {command} " in result.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "nothing"], "unknown task 'nothing': choose one of digits"),
        (["train", "digits", "--codec", "zip"], "zip"),
        (["train", "digits", "--workers", "0"], "workers must be at least 1, not 0"),
        (["train", "digits", "--model", "nets"], "unknown model 'nets'"),
        (["train", "digits", "--resume", "no.pt"], r"no\.pt does not exist"),
        (["train", "digits", "--rate", "fast"], "fast"),
        (["train", "mnist", "--data", "nowhere"], "data folder nowhere does not exist"),
        (["compare", "digits", "--codecs", ""], "no codec named"),
        (["compare", "digits", "--codecs", "ddp,ddp"], "name one twice"),
        (["report", "nowhere"], "run folder nowhere does not exist"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ThinwireError, match=sentence):
        call(app, *words)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_folder_is_found_before_training(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be made"):
        call(app, "train", "digits", *SMALL, "--out", str(tmp_path / "file"))


def test_codecs_with_commas_are_quoted() -> None:
    assert split_codecs("ddp, terngrad") == ("ddp", "terngrad")
    assert split_codecs('ddp,"terngrad:clip=2.5,block=512"') == ("ddp", "terngrad:clip=2.5,block=512")
    assert split_codecs(" ") == ()


@pytest.mark.parametrize(
    "words",
    [
        ("train", "digits", "--codec", "terngard"),
        ("train", "digits", "--codec", "topk:0.1 @ memory=resid"),
        ("train", "digits", "--rate", "fast"),
        ("compare", "digits", "--codecs", "ddp,terngard"),
        ("plan", "alexnet", "--codec", "terngard"),
        ("bench", "exchange", "--codecs", "terngard"),
        ("bench", "kernels", "--codecs", "terngard"),
        ("bench", "digests", "--codecs", "terngard"),
        ("bench", "step", "--hooks", "ddp-best,terngard"),
        ("bench", "step", "--rate", "fast"),
    ],
)
def test_misspelt_names_cost_no_torch(words: tuple[str, ...]) -> None:
    """One sentence on standard error and nothing else, before anything slow is imported."""
    code = "import sys; sys.modules['torch'] = None; from thinwire.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("thinwire: ")


def test_it_is_a_module_too() -> None:
    done = subprocess.run([sys.executable, "-m", "thinwire", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("thinwire ")


def test_options_are_checked_before_data_are_loaded(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("data were loaded")

    monkeypatch.setattr("thinwire.lab.session.load_task", never)
    for words in (
        ["--codec", "terngrad:clip=much"],
        ["--model", "nets"],
        ["--codec", "topk:0.1 @ control=guard:a=1"],
    ):
        with pytest.raises(ThinwireError):
            call(app, "train", "digits", *words)


def test_no_limit_is_a_rate() -> None:
    assert rate_or_none("none") is None
    assert rate_or_none("100mbit") == "100mbit"
    with pytest.raises(LabError, match="not understood"):
        rate_or_none("nothing")
