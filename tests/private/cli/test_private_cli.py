"""thinwire private on the command line: one clear sentence for everything that is wrong, rows with --json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import thinwire_private as private
from thinwire.errors import ThinwireError
from thinwire_private.cli.app import make_app
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.twq import QuantizedModel, write_twq
from thinwire_private.sessions import digest
from thinwire_private.variant import VARIANTS, variant


@pytest.fixture(scope="module")
def model(small: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.twq"
    write_twq(path, QuantizedModel(small))
    return path


def run(*arguments: object) -> str:
    """What a command prints; its refusal is raised as the user's one line."""
    result = CliRunner().invoke(make_app(), list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", ["demo", "serve", "infer", "cost", "bench", "certificate", "train"])
def test_every_command_shows_examples(command: str) -> None:
    text = run(command, "--help")
    assert "thinwire private" in text


@pytest.mark.parametrize(("net", "told"), [("resnet32:list", 44_854_777), ("resnet32:W4A6", 46_903_993)])
def test_the_cost_of_what_the_readme_names(net: str, told: int) -> None:
    """The README said 454 MB above a command that printed 641."""
    assert f"{net}: {told:,} bytes in both directions ({told / 1e6:,.0f} MB)" in run("cost", net)
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert f"{told / 1e6:.0f} MB" in readme
    assert "resnet32:list" in readme


def test_a_net_without_a_list_says_so() -> None:
    with pytest.raises(
        ThinwireError, match="no list of widths is known for digits: write widths, as in digits:W4A6"
    ):
        run("cost", "digits:list")


def test_infer_against_a_server(small: Graph, pictures: IntArray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", pictures[:2])
    expected = oracle.run(small, pictures[:2])
    with private.Server(small, timeout_s=120) as server:
        address = f"127.0.0.1:{server.address[1]}"
        wanted = digest(small, VARIANTS["ours"]).hex()
        lines = run(
            *("infer", "--server", address, "--input", tmp_path / "x.npy", "--expect", wanted),
            *("--output", tmp_path / "y.npy", "--json"),
        )
    rows = [json.loads(line) for line in lines.splitlines()]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    assert [row["class"] for row in rows[:2]] == expected.argmax(1).tolist()
    assert rows[2]["predicted_bytes"] == rows[2]["measured_bytes"] > 0


def test_cost_adds_up_and_a_slower_link_takes_longer(model: Path) -> None:
    def rows(*more: object) -> list[dict[str, float]]:
        return [json.loads(line) for line in run("cost", model, "--json", *more).splitlines()]

    plain, slow = rows("--operators"), rows("--operators", "--rate", "1mbit", "--round-trip", 100)
    layers, ends = plain[:-4], plain[-4:]
    assert sum(row["bytes"] for row in layers) == ends[-1]["bytes"] == sum(row["bytes"] for row in ends[:3])
    assert slow[-1]["seconds"] > plain[-1]["seconds"]
    assert slow[-1]["seconds"] == pytest.approx(
        slow[-1]["bytes"] * 8 / 1e6 + slow[-1]["hops"] * 0.05, rel=1e-9
    )


@pytest.mark.parametrize("name", ["ours", "B1", "S5", "ours-tight"])
def test_cost_is_what_a_client_then_measures(
    name: str, model: Path, small: Graph, pictures: IntArray
) -> None:
    told = json.loads(run("cost", model, "--variant", name, "--json").splitlines()[-1])
    server = private.Server(small, timeout_s=120, variant=variant(name))
    with server, private.Client(server.address) as client:
        client.predict(pictures[0])
        assert sum(entry.measured_bytes for entry in client.entries) == told["bytes"]


def test_cost_of_the_zoo_needs_no_weights() -> None:
    assert json.loads(run("cost", "resnet50:W4A6", "--json").splitlines()[-1])["bytes"] > 1e9


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("cost", "nothing.twq"), "cannot be read"),
        (("cost", "digits:W99A1"), "cannot be read: write W4A6"),
        (("cost", "digits:W4A6", "--variant", "S9"), "variant 'S9' is unknown"),
        (("cost", "digits:W4A6", "--variant", "S5"), "come from the weights: give a .twq file"),
        (("cost", "digits:W4A6", "--rate", "fast"), 'rate "fast" is not understood'),
        (("bench", "everything"), 'there is no bench "everything"'),
        (("bench", "rival"), "needs a Python with SPU"),
        (("bench", "latency", "--links", "fast"), 'link "fast" cannot be read'),
        (("bench", "ladder", "--nets", "lenet"), "unknown network 'lenet'"),
        (("bench", "ladder", "--nets", "digits", "--variants", "S9"), "variant 'S9' is unknown"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ThinwireError) as caught:
        run(*arguments)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        ("here", "write HOST:PORT"),
        ("192.0.2.1:7000", "without TLS others on the network"),
        ("127.0.0.1:1", "no server answers at 127.0.0.1:1"),
    ],
)
def test_infer_tells_what_is_wrong_with_the_server(tmp_path: Path, server: str, sentence: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1, np.int64))
    with pytest.raises(ThinwireError, match=sentence):
        run("infer", "--server", server, "--input", tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("listen", "more", "sentence"),
    [
        ("0.0.0.0:7000", (), "without TLS others on the network"),
        ("127.0.0.1:port", (), "write HOST:PORT"),
        ("127.0.0.1:0", ("--key", "server.key"), "needs a certificate beside it"),
        ("127.0.0.1:0", ("--cert", "none.pem", "--key", "none.key"), "cannot be used together"),
        ("nowhere.invalid:7000", (), "is not known: check the name"),
    ],
)
def test_serve_refuses_what_is_not_safe(
    model: Path, listen: str, more: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ThinwireError, match=sentence):
        run("serve", "--model", model, "--listen", listen, *more)


def test_serve_tells_a_port_in_use(model: Path, small: Graph) -> None:
    with private.Server(small) as server, pytest.raises(ThinwireError, match="choose another port"):
        run("serve", "--model", model, "--listen", f"127.0.0.1:{server.address[1]}")


@pytest.mark.parametrize(
    ("place", "sentence"), [(4, "has version"), (40, "checksum differs"), (None, r"not a \.twq model")]
)
def test_serve_refuses_a_damaged_model(model: Path, tmp_path: Path, place: int | None, sentence: str) -> None:
    raw = bytearray(model.read_bytes())
    if place is None:
        raw = raw[:10]
    else:
        raw[place] ^= 8
    (tmp_path / "bad.twq").write_bytes(raw)
    with pytest.raises(ThinwireError, match=sentence):
        run("serve", "--model", tmp_path / "bad.twq", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("content", [b"no array", b""])
def test_infer_refuses_a_file_that_is_no_array(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ThinwireError, match=r"give a \.npy file"):
        run("infer", "--server", "127.0.0.1:1", "--input", tmp_path / "x.npy")


def test_certificates_are_written(tmp_path: Path) -> None:
    names = run("certificate", "hospital.example", "192.0.2.7", "--out", tmp_path).split()
    assert [Path(name).name for name in names] == [
        *("ca.pem", "server.pem", "server.key", "client.pem", "client.key")
    ]
