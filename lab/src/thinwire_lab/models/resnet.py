"""Residual networks for CIFAR-10."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from thinwire_lab.models.named_layers import named


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
