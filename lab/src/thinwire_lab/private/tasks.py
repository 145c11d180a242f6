"""Tasks of the lab as pictures that a private network takes, and the network that is trained on each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch

from thinwire.errors import LabError
from thinwire_lab.data import load_task
from thinwire_lab.data.augment import shift_and_flip
from thinwire_lab.data.folder import Say
from thinwire_private.errors import ModelError
from thinwire_private.net.widths import Bits
from thinwire_private.net.zoo import build
from thinwire_private.train.fit import Pictures
from thinwire_private.train.run import Plan
from thinwire_private.train.trace import traced, user_model

DEFAULTS: Mapping[str, str] = MappingProxyType({"digits": "digits", "cifar10": "resnet8w"})
AUGMENTED = ("cifar10",)


def load_pictures(task: str, data: Path | None = None, say: Say = lambda _: None) -> Pictures:
    """The pictures of a lab task."""
    found = load_task(task, data, say)
    if not found.mean:
        raise LabError(f"task {task!r} has no pictures: choose digits, mnist, fashion-mnist or cifar10")
    tensors = [
        torch.from_numpy(part.copy()) for split in (found.train, found.test) for part in (split.x, split.y)
    ]
    x, y, test_x, test_y = tensors
    augment = shift_and_flip if task in AUGMENTED else None
    return Pictures(task, x, y.long(), test_x, test_y.long(), augment)


def plan_for(task: str, net: str | None = None, data: Path | None = None) -> Plan:
    """The plan of a task and of a network's name, or `module:function`."""
    name = net or DEFAULTS.get(task)
    if name is None:
        raise ModelError(f"task {task!r} has no network of its own: name one with --net")
    pictures = load_pictures(task, data)
    if ":" in name:
        model = user_model(name)
        found = traced(model, tuple(pictures.x.shape[1:]), int(pictures.x.max()).bit_length())
        plan = Plan(name, pictures, found.draw, found.fill)
    else:
        plan = Plan(name, pictures, partial(build, name))
    pictures.check(plan.draw(Bits()))
    return plan
