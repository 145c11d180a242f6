"""Policies: which rule a tensor meets, and what stays dense by rule."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thinwire as tw
from thinwire.errors import CodecError, PlanError
from thinwire.plans.policy import KEEP_DENSE, Model, Policy
from thinwire.tensors import Spec


class Net(nn.Module):
    """One of everything that has a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.body = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.head = nn.Linear(64, 100)


NET = Model.of(Net())
SPECS = {spec.name: spec for spec in NET.specs}


def chosen(policy: Policy) -> dict[str, tuple[str, str]]:
    choices = {spec.name: policy.choose(spec, NET) for spec in NET.specs}
    return {name: (choice.codec.name, choice.reason) for name, choice in choices.items()}


def test_a_model_is_read() -> None:
    assert set(SPECS) == {
        "embedding.weight",
        *(f"body.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")),
        "head.weight",
        "head.bias",
    }
    assert NET.embeddings == {"embedding.weight"}
    assert NET.last == {"head.weight", "head.bias"}
    assert SPECS["head.weight"] == Spec("head.weight", (100, 64), torch.float32)


def test_a_model_with_one_layer_has_no_last_layer() -> None:
    assert Model.of(nn.Linear(4, 4)).last == frozenset()
    assert Model.of(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))).last == frozenset()


def tied_net(embedding_first: bool = True) -> nn.Module:
    """A small GPT: the head shares its weight with the embedding."""
    net = nn.Module()
    wte, head = nn.Embedding(500, 64), nn.Linear(64, 500)
    layers = {"wte": wte, "fc": nn.Linear(64, 64), "proj": nn.Linear(64, 64), "head": head}
    for name, layer in layers.items() if embedding_first else reversed(layers.items()):
        net.add_module(name, layer)
    head.weight = wte.weight
    return net


def test_a_tied_head_is_still_the_last_layer() -> None:
    """No inner layer takes its place, and the reason says what is tied."""
    model = Model.of(tied_net())
    assert [spec.name for spec in model.specs].count("wte.weight") == 1
    assert (model.embeddings, model.last) == ({"wte.weight"}, {"wte.weight", "head.bias"})
    policy = Policy.of("terngrad")
    choices = {spec.name: policy.choose(spec, model) for spec in model.specs}
    assert choices["proj.weight"].codec.name == "terngrad"
    assert choices["wte.weight"].codec.name == "dense"
    assert choices["wte.weight"].reason == "embedding; tied: head.weight"
    only_last = Policy.of("terngrad", keep_dense=("last",))
    assert only_last.choose(model.specs[0], model).reason == "last layer; tied: head.weight"


def test_the_last_layer_of_a_net_that_names_its_head_first() -> None:
    model = Model.of(tied_net(embedding_first=False))
    assert model.embeddings == {"head.weight"}
    assert model.tied == {"head.weight": ("wte.weight",)}


def test_rules_know_all_names_of_a_tied_tensor() -> None:
    model = Model.of(tied_net())
    policy = Policy.of({"head.weight": "qsgd:4", "*": "terngrad"})
    policy.check(model)
    choice = policy.choose(model.specs[0], model)
    assert (choice.codec.name, choice.reason) == ("qsgd:4", 'rule "head.weight"; tied: head.weight')


def test_no_inner_layer_takes_the_place_of_a_frozen_last_one() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10).requires_grad_(False))
    policy, model = Policy.of("terngrad"), Model.of(net)
    choices = {spec.name: policy.choose(spec, model).codec.name for spec in model.specs}
    assert choices["1.weight"] == "terngrad"


def test_a_parametrized_embedding_is_an_embedding() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Embedding(50, 64))
    nn.utils.parametrizations.weight_norm(net[2])
    model = Model.of(net)
    assert model.embeddings == {f"2.parametrizations.weight.original{i}" for i in (0, 1)}
    assert model.last == {"1.weight", "1.bias"}


def test_names_do_not_tell_of_wrappers() -> None:
    """A compiled net, or a compiled part of one, is the same model."""
    net = Net()
    assert Model.of(Compiled(net)) == NET
    net.body[0] = Compiled(net.body[0])
    assert Model.of(net) == NET


class Compiled(nn.Module):
    """What torch.compile makes of a module, as far as names go."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


def test_safe_defaults() -> None:
    assert chosen(Policy.of("terngrad")) == {
        "embedding.weight": ("dense", "embedding"),
        "body.0.weight": ("terngrad", "the rest"),
        "body.0.bias": ("dense", "norm or bias"),
        "body.1.weight": ("dense", "norm or bias"),
        "body.1.bias": ("dense", "norm or bias"),
        "body.2.weight": ("dense", "fewer than 1024 elements"),
        "body.2.bias": ("dense", "norm or bias"),
        "head.weight": ("dense", "last layer"),
        "head.bias": ("dense", "norm or bias"),
    }


@pytest.mark.parametrize("word", KEEP_DENSE)
def test_every_default_can_be_switched_off(word: str) -> None:
    whole = chosen(Policy.of("terngrad"))
    without = chosen(Policy.of("terngrad", keep_dense=[w for w in KEEP_DENSE if w != word]))
    assert (
        sum(codec == "terngrad" for codec, _ in without.values())
        > sum(codec == "terngrad" for codec, _ in whole.values())
        or word == "vector"
    )  # what "vector" lets go is caught by "small"
    assert all(codec == "terngrad" for codec, _ in chosen(Policy.of("terngrad", keep_dense=())).values())


def test_the_size_limit_can_be_moved() -> None:
    assert chosen(Policy.of("terngrad", min_numel=512))["body.2.weight"] == ("terngrad", "the rest")
    assert chosen(Policy.of("terngrad", min_numel=10**6))["body.0.weight"][0] == "dense"


@pytest.mark.parametrize("codec", ["dense", "fp16", "bf16"])
def test_gentle_codecs_take_every_tensor(codec: str) -> None:
    assert set(chosen(Policy.of(codec)).values()) == {(codec, "the rest")}


def test_the_first_rule_that_fits_wins_and_overrules_the_defaults() -> None:
    policy = Policy.of({"*.bias": "bf16", "head.*": "terngrad:2", "body.?.weight": "fp16", "*": "terngrad"})
    choices = chosen(policy)
    assert choices["head.bias"] == ("bf16", 'rule "*.bias"')
    assert choices["head.weight"] == ("terngrad:2", 'rule "head.*"')
    assert choices["body.1.weight"] == ("fp16", 'rule "body.?.weight"')
    assert choices["embedding.weight"] == ("dense", "embedding")
    assert [str(codec) for codec in policy.codecs] == ["bf16", "terngrad:2", "fp16", "terngrad"]


def test_the_rest_comes_last_wherever_it_is_written() -> None:
    choices = chosen(Policy.of({"*": "terngrad", "body.0.weight": "bf16"}))
    assert choices["body.0.weight"] == ("bf16", 'rule "body.0.weight"')


def test_without_a_star_the_rest_is_dense() -> None:
    choices = chosen(Policy.of({"body.0.weight": "terngrad"}))
    assert choices.pop("body.0.weight")[0] == "terngrad"
    assert {codec for codec, _ in choices.values()} == {"dense"}


def test_codecs_may_be_given_as_objects() -> None:
    codec = tw.parse("terngrad:clip=3")
    assert Policy.of(codec).rest == codec
    assert Policy.of({"a": codec}).rules == (("a", codec),)


@pytest.mark.parametrize("value", [None, 4, 2.5, ["terngrad"], nn.Linear(1, 1)])
def test_what_is_no_codec_is_refused(value: object) -> None:
    with pytest.raises(CodecError, match='is no codec: give a text like "terngrad"'):
        Policy.of(value)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="is no codec"):
        Policy.of({"a": value})  # type: ignore[dict-item]


def test_bad_words_and_texts_are_refused() -> None:
    with pytest.raises(
        PlanError, match='keep_dense: "bias" is no rule: known are vector, small, embedding, last'
    ):
        Policy.of("terngrad", keep_dense=("bias",))
    with pytest.raises(CodecError, match='did you mean "terngrad"'):
        Policy.of({"fc*": "terngard"})


def test_a_rule_that_matches_no_tensor_is_refused() -> None:
    """A typo in a pattern must not leave a layer dense in silence."""
    model = Model((Spec("conv.weight", (64, 64)), Spec("fc.weight", (64, 64))))
    with pytest.raises(PlanError, match='rule "fully\\*" matches no tensor'):
        Policy.of({"fully*": "terngrad"}).check(model)
    Policy.of({"fc*": "terngrad"}).check(model)


def test_what_is_sensitive_travels_by_a_codec_of_its_own() -> None:
    """Instead of dense; rules by name come first, and a codec that is nearly exact needs none."""
    found = chosen(Policy.of("rotated", sensitive="qsgd:8"))
    assert found["body.0.weight"] == ("rotated", "the rest")
    assert found["embedding.weight"] == ("qsgd:8", "embedding")
    assert found["head.weight"] == ("qsgd:8", "last layer")
    assert found["body.1.bias"] == ("qsgd:8", "norm or bias")
    assert (
        chosen(Policy.of({"head.*": "fp16", "*": "rotated"}, sensitive="qsgd:8"))["head.weight"][0] == "fp16"
    )
    assert {name for name, _ in chosen(Policy.of("bf16", sensitive="qsgd:8")).values()} == {"bf16"}
    assert [codec.name for codec in Policy.of("rotated", sensitive="qsgd:8").codecs] == ["qsgd:8", "rotated"]
    with pytest.raises(CodecError, match='no codec "qsgt"'):
        Policy.of("rotated", sensitive="qsgt:8")


def test_a_sensitive_codec_saves_bytes() -> None:
    plans = [
        tw.Plan.of(Policy.of("rotated", sensitive=codec), NET, 4) for codec in (None, "qsgd:8", "qsgd:4")
    ]
    dense, eight, four = (plan.step_bytes() for plan in plans)
    assert dense > 2 * eight
    assert eight > four
    assert len({plan.digest for plan in plans}) == 3
