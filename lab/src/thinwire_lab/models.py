"""Models by name: plain torch.nn networks for the lab's tasks, and the shape of what they take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from thinwire.errors import LabError

CONTEXT = 64  # characters it looks back


@dataclass(frozen=True)
class ModelCard:
    """How to build a model and what it takes: the shape of one example and the usual number of classes.

    `optimizer`: what benches train it with, "sgd" (momentum 0.9) or "adamw".
    """

    builder: Callable[[int], nn.Module]
    input_shape: tuple[int, ...]
    classes: int
    optimizer: str = "sgd"

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer for benches: a step costs what it costs in training, but need not learn."""
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, lr=1e-3)
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def build(self, seed: int, classes: int | None = None) -> nn.Module:
        """The model with weights drawn from `seed` alone: every worker starts with the same bits."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.builder(self.classes if classes is None else classes)

    def example(self, batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Made-up inputs and targets of the right shape, for benchmarks that need no data set."""
        generator = torch.Generator().manual_seed(seed)
        if self.input_shape == (CONTEXT,):
            symbols = torch.randint(self.classes, (2, batch, CONTEXT), generator=generator)
            return symbols[0], symbols[1]
        images = torch.randn(batch, *self.input_shape, generator=generator)
        return images, torch.randint(self.classes, (batch,), generator=generator)


def digits_cnn(classes: int) -> nn.Module:
    """Two convolutions and two fully-connected layers for 8x8 pictures: 151,306 parameters."""
    return named(
        conv1=nn.Conv2d(1, 32, 3, padding=1),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 3, padding=1),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        fc1=nn.Linear(64 * 4 * 4, 128),
        relu3=nn.ReLU(),
        fc2=nn.Linear(128, classes),
    )


def lenet(classes: int) -> nn.Module:
    """Caffe's LeNet (20-50-500) for 28x28 pictures: 431,080 parameters."""
    return named(
        conv1=nn.Conv2d(1, 20, 5),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(20, 50, 5),
        pool2=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        fc1=nn.Linear(50 * 4 * 4, 500),
        relu1=nn.ReLU(),
        fc2=nn.Linear(500, classes),
    )


def cifarnet(classes: int) -> nn.Module:
    """The CIFAR-10 network of TernGrad's experiments (TensorFlow's tutorial: two convolutions, 384, 192)."""
    return named(
        conv1=nn.Conv2d(3, 64, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(3, 2, 1),
        norm1=nn.LocalResponseNorm(9, 0.009, 0.75),
        conv2=nn.Conv2d(64, 64, 5, padding=2),
        relu2=nn.ReLU(),
        norm2=nn.LocalResponseNorm(9, 0.009, 0.75),
        pool2=nn.MaxPool2d(3, 2, 1),
        flat=nn.Flatten(),
        fc1=nn.Linear(64 * 8 * 8, 384),
        relu3=nn.ReLU(),
        fc2=nn.Linear(384, 192),
        relu4=nn.ReLU(),
        fc3=nn.Linear(192, classes),
    )


def alexnet(classes: int, dropout: float = 0.2) -> nn.Module:
    """AlexNet's shape for 32x32 pictures: cheap convolutions, 95 % of 5.8 M parameters fully connected.

    Dropout is 0.2 as in TernGrad's AlexNet, not 0.5 as in the original.
    """
    return named(
        conv1=nn.Conv2d(3, 32, 5, stride=2, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 96, 3, padding=1),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(96, 128, 3, padding=1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(128, 128, 3, padding=1),
        relu4=nn.ReLU(),
        pool4=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        drop1=nn.Dropout(dropout),
        fc1=nn.Linear(128 * 4 * 4, 1536),
        relu5=nn.ReLU(),
        drop2=nn.Dropout(dropout),
        fc2=nn.Linear(1536, 1536),
        relu6=nn.ReLU(),
        fc3=nn.Linear(1536, classes),
    )


def alexnet_dropout(classes: int) -> nn.Module:
    """The same with the dropout of the original, 0.5."""
    return alexnet(classes, dropout=0.5)


def vgg(classes: int) -> nn.Module:
    """VGG's shape with strides instead of pools: 3.9 M parameters, nearly all in cheap 3x3 convolutions."""
    layers: list[nn.Module] = []
    for narrow, wide, stride in ((3, 64, 2), (64, 128, 2), (128, 256, 2), (256, 512, 2), (512, 512, 1)):
        layers += [nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
    return named(
        features=nn.Sequential(*layers),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        fc=nn.Linear(512, classes),
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut that subsamples and pads channels where the width grows."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.stride = 1 if narrow == wide else 2
        self.pad = wide - narrow
        self.conv1 = nn.Conv2d(narrow, wide, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(wide)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        shortcut = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.pad))
        return functional.relu(y + shortcut)


def resnet20(classes: int) -> nn.Module:
    """ResNet-20 for CIFAR-10 (He et al. 2015, section 4.2, option A shortcuts)."""
    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    blocks = [ResidualBlock(narrow, wide) for narrow, wide in pairwise(widths)]
    return named(
        conv=nn.Conv2d(3, 16, 3, padding=1, bias=False),
        norm=nn.BatchNorm2d(16),
        relu=nn.ReLU(),
        blocks=nn.Sequential(*blocks),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        fc=nn.Linear(64, classes),
    )


def resnet8(classes: int) -> nn.Module:
    """Three residual blocks (16, 32, 64 channels) behind a stem of stride 2: CIFAR-10 in a minute on CPUs."""
    blocks = [ResidualBlock(narrow, wide) for narrow, wide in pairwise((16, 16, 32, 64))]
    return named(
        conv=nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        norm=nn.BatchNorm2d(16),
        relu=nn.ReLU(),
        blocks=nn.Sequential(*blocks),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        fc=nn.Linear(64, classes),
    )


def resnet8_wide(classes: int) -> nn.Module:
    """Three residual blocks (48, 96, 192 channels), all of stride 2 like the stem: 0.66 M parameters.

    Most of them are in the last block, at 2x2 pixels, where they are cheap: an epoch of CIFAR-10 costs half a
    minute of one core.
    """
    blocks = [ResidualBlock(narrow, wide) for narrow, wide in pairwise((24, 48, 96, 192))]
    return named(
        conv=nn.Conv2d(3, 24, 3, 2, 1, bias=False),
        norm=nn.BatchNorm2d(24),
        relu=nn.ReLU(),
        blocks=nn.Sequential(*blocks),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        fc=nn.Linear(192, classes),
    )


class CharTransformer(nn.Module):
    """A small GPT over characters: token and place embeddings, causal pre-norm blocks, a linear read-out."""

    def __init__(self, classes: int, width: int = 128, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.place = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.read_out = nn.Linear(width, classes)

    def forward(self, symbols: Tensor) -> Tensor:
        length = symbols.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=symbols.device)
        x = self.token(symbols) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        logits: Tensor = self.read_out(self.norm(x))
        return logits


class CharLstm(nn.Module):
    """Two layers of 256 cells: 876,929 parameters for 65 characters."""

    def __init__(self, classes: int, width: int = 64, cells: int = 256) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.cells = nn.LSTM(width, cells, num_layers=2, batch_first=True)
        self.read_out = nn.Linear(cells, classes)

    def forward(self, symbols: Tensor) -> Tensor:
        outputs, _ = self.cells(self.token(symbols))
        logits: Tensor = self.read_out(outputs)
        return logits


class TiedGpt(CharTransformer):
    """A GPT-like of 4 blocks whose read-out is its token embedding: 809,856 parameters."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes, width=128, heads=4, depth=4)
        self.read_out = nn.Linear(128, classes, bias=False)
        self.read_out.weight = self.token.weight


class WordGpt(CharTransformer):
    """A GPT-like over words, 4 blocks of width 256 under a tied embedding: 5,273,088 parameters."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes, width=256, heads=4, depth=4)
        self.read_out = nn.Linear(256, classes, bias=False)
        self.read_out.weight = self.token.weight


def mlp(classes: int) -> nn.Module:
    """784-1024-1024, fully connected: 1,863,690 parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, classes),
    )


def named(**layers: nn.Module) -> nn.Sequential:
    """Layers in a row, each with a name: rules like {"fc*": "terngrad"} and reports speak of them."""
    return nn.Sequential(OrderedDict(layers))


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
        "word-gpt": ModelCard(WordGpt, (CONTEXT,), 8192, optimizer="adamw"),
    }
)


def _built(card: ModelCard) -> tuple[nn.Module, Tensor]:
    return card.build(seed=0), card.example(1)[0]


BUILT = {name: partial(_built, card) for name, card in MODELS.items()}  # for `thinwire plan`


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
