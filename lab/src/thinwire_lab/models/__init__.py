"""Models by name: plain torch.nn networks for the lab's tasks, and the shape of what they take."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from thinwire.errors import LabError
from thinwire_lab.models.nets import (
    CONTEXT,
    CharLstm,
    CharTransformer,
    ModelCard,
    TiedGpt,
    alexnet,
    alexnet_dropout,
    cifarnet,
    digits_cnn,
    lenet,
    mlp,
    resnet8,
    resnet8_wide,
    resnet20,
    vgg,
)

__all__ = ["MODELS", "ModelCard", "fit_check", "model_card"]

MODELS: Mapping[str, ModelCard] = MappingProxyType(
    {
        "digits-cnn": ModelCard(digits_cnn, (1, 8, 8), 10),
        "lenet": ModelCard(lenet, (1, 28, 28), 10),
        "cifarnet": ModelCard(cifarnet, (3, 32, 32), 10),
        "alexnet": ModelCard(alexnet, (3, 32, 32), 10),
        "alexnet-dropout": ModelCard(alexnet_dropout, (3, 32, 32), 10),
        "vgg": ModelCard(vgg, (3, 32, 32), 10),
        "resnet8": ModelCard(resnet8, (3, 32, 32), 10),
        "resnet8-wide": ModelCard(resnet8_wide, (3, 32, 32), 10),
        "resnet20": ModelCard(resnet20, (3, 32, 32), 10),
        "char-transformer": ModelCard(CharTransformer, (CONTEXT,), 65),
        "mlp": ModelCard(mlp, (1, 28, 28), 10),
        "lstm": ModelCard(CharLstm, (CONTEXT,), 65),
        "gpt": ModelCard(TiedGpt, (CONTEXT,), 65, optimizer="adamw"),
    }
)


def model_card(name: str) -> ModelCard:
    """The card of the model called `name`."""
    if name not in MODELS:
        raise LabError(f"unknown model {name!r}: choose one of {', '.join(MODELS)}")
    return MODELS[name]


def fit_check(name: str, task: str, example_shape: tuple[int, ...]) -> ModelCard:
    """The card of a model, after checking that it takes examples of this shape."""
    card = model_card(name)
    if card.input_shape != example_shape:
        fitting = [other for other, its in MODELS.items() if its.input_shape == example_shape]
        raise LabError(
            f"model {name!r} takes examples of shape {card.input_shape}, task {task!r} has {example_shape}: "
            f"choose one of {', '.join(fitting)}"
        )
    return card
