"""Plan: a task with the network that is trained on it, from the zoo or from the user."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import nn

from thinwire_private.errors import ModelError
from thinwire_private.net.bits import Bits
from thinwire_private.net.graph import Graph
from thinwire_private.net.zoo import build
from thinwire_private.train.pictures import Pictures, load_pictures
from thinwire_private.train.qnet import QNet
from thinwire_private.train.trace import Traced, traced

DEFAULTS: Mapping[str, str] = MappingProxyType({"digits": "digits", "cifar10": "resnet8w"})


@dataclass(frozen=True)
class Plan:
    """Pictures, and a network for them at any bit widths; `fill` puts a user's own weights in."""

    name: str
    pictures: Pictures
    draw: Callable[[Bits], Graph]
    fill: Callable[[QNet], None] = lambda _: None

    def start(self, bits: Bits, seed: int) -> QNet:
        """The network in floating point; new weights are drawn from the seed."""
        torch.manual_seed(seed)
        net = QNet(self.draw(bits))
        self.fill(net)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net


def plan_for(task: str, net: str | None = None, data: Path | None = None) -> Plan:
    """The plan of a task and of a network's name, or `module:function`."""
    name = net or DEFAULTS.get(task)
    if name is None:
        raise ModelError(f"task {task!r} has no network of its own: name one with --net")
    pictures = load_pictures(task, data)
    if ":" in name:
        model = user_model(name)
        found = traced(model, tuple(pictures.x.shape[1:]), int(pictures.x.max()).bit_length())
        plan = Plan(name, pictures, found.draw, partial(_fill, found))
    else:
        plan = Plan(name, pictures, partial(build, name))
    pictures.check(plan.draw(Bits()))
    return plan


def _fill(found: Traced, net: QNet) -> None:
    found.fill(net)


def user_model(name: str) -> nn.Module:
    """What the function in `module:function` returns; modules in the current folder are found too."""
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        model = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{name} cannot be called ({error}): name it module:function") from error
    finally:
        sys.path.pop(0)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name} returned a {type(model).__name__}: it must return a torch.nn.Module")
    return model
