"""A whole run on digits: floating point, grid, export, score; kept weights give the same network again."""

from __future__ import annotations

from pathlib import Path

import pytest

from thinwire_lab.private.study import plan_for
from thinwire_private.errors import ModelError
from thinwire_private.net.oracle import predict
from thinwire_private.net.widths import read_bits
from thinwire_private.train.fit import TrainingSchedule
from thinwire_private.train.run import pretrain, stages, tune


def test_digits_are_learnt_and_survive_four_bits(tmp_path: Path) -> None:
    plan = plan_for("digits")
    bits = read_bits("W4A4")
    net, score = pretrain(plan, bits, TrainingSchedule(5, 0.2, 64), 0, keep=tmp_path / "float.pt")
    result = tune(
        net, plan.draw, bits, plan.pictures, TrainingSchedule(1, 2e-3, 64, 0.0), 0, float_accuracy=score
    )
    assert score > 0.95
    assert result.accuracy > 0.93
    right = predict(result.graph, plan.pictures.test_x.numpy()) == plan.pictures.test_y.numpy()
    assert right.mean() == result.accuracy
    again, same = pretrain(plan, bits, TrainingSchedule(5, 0.2, 64), 0, start=tmp_path / "float.pt")
    assert same == score
    assert not again.quantized


def test_low_bits_start_from_higher_ones() -> None:
    assert [each.weight for each in stages(read_bits("W2A4"), progressive=True)] == [4, 2]
    assert len(stages(read_bits("W2A4"), progressive=False)) == 1
    assert len(stages(read_bits("W8A8"), progressive=True)) == 1


MODULE = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))

def number():
    return 3
"""


def test_a_users_own_module_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_private_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    plan = plan_for("digits", "my_private_model:build")
    bits = read_bits("W4A4")
    net, _ = pretrain(plan, bits, TrainingSchedule(0.2, 0.1, 64), 0)
    result = tune(net, plan.draw, bits, plan.pictures, TrainingSchedule(0.1, 2e-3, 64, 0.0), 0)
    assert [layer.name for layer in result.graph.layers] == ["0", "3"]
    with pytest.raises(ModelError, match="returned a int: it must return"):
        plan_for("digits", "my_private_model:number")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="network 'resnet8w' takes 3x32x32"):
        plan_for("digits", "resnet8w")
    with pytest.raises(ModelError, match="unknown network"):
        plan_for("digits", "resnet9")
    with pytest.raises(ModelError, match="cannot be called"):
        plan_for("digits", "nosuchmodule:build")
    (tmp_path / "bad.pt").write_bytes(b"no weights")
    plan = plan_for("digits")
    with pytest.raises(ModelError, match="does not fit network 'digits'"):
        pretrain(plan, read_bits("W8A8"), TrainingSchedule(1, 0.1), 0, start=tmp_path / "bad.pt")
