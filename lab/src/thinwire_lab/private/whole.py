"""Whole sets: all pictures of the digits test set, 100 of CIFAR-10 with ResNet-8; every logit compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from thinwire.errors import PrivateError
from thinwire_lab.data import load_task
from thinwire_lab.private.demo import trained_digits
from thinwire_lab.private.host import Host
from thinwire_lab.private.ladder import summary
from thinwire_lab.private.parties import run_parties
from thinwire_lab.private.visitor import Visitor
from thinwire_lab.private.wishes import Row, Say, Wishes
from thinwire_private.net.graph import Graph
from thinwire_private.net.oracle import overflows, predict
from thinwire_private.net.twq import read_twq

CIFAR_IMAGES = 100


def digits(wishes: Wishes, say: Say) -> Iterator[Row]:
    """All 360 test pictures of digits, by ours on SoftSpoken<8> and on KK13 with IKNP."""
    graph = _model(wishes, "digits-list.twq") or _model(wishes, "digits-W4A6.twq") or trained_digits()
    for variant in wishes.variants or ("ours", "S6-clamp"):
        settings = {"net": "digits", "variant": variant, "images": "all", "macs": graph.macs}
        say(f"digits, whole test set, {variant}")
        yield wishes.once("whole", settings, _compare, "digits", graph, variant, None, wishes, say)


def cifar10(wishes: Wishes, say: Say) -> Iterator[Row]:
    """100 test pictures of CIFAR-10 by a trained ResNet-8."""
    graph = _model(wishes, "resnet8w-list.twq") or _model(wishes, "resnet8w-W4A6.twq")
    if graph is None:
        raise PrivateError(
            "this bench needs a trained ResNet-8: put resnet8w-list.twq into the folder of --models "
            "(thinwire private train cifar10 makes one)"
        )
    for variant in wishes.variants or ("ours",):
        settings = {"net": "resnet8w", "variant": variant, "images": CIFAR_IMAGES}
        say(f"cifar10, {CIFAR_IMAGES} images, {variant}")
        yield wishes.once("whole", settings, _compare, "cifar10", graph, variant, CIFAR_IMAGES, wishes, say)


def _compare(task: str, graph: Graph, variant: str, images: int | None, wishes: Wishes, say: Say) -> Row:
    test = load_task(task, wishes.data, say).test
    x, labels = test.x[:images].astype("int64"), test.y[:images]
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(Path(folder), graph, x, Host("", variant), Visitor("", "", ""))
    return {
        "task": task,
        "net": graph.name,
        "variant": variant,
        **summary(run),
        "accuracy": round(float((predict(graph, x) == labels).mean()), 4),
        "clamped": sum(each.count for each in overflows(graph, x)),
        "seconds_an_image": round(run.client["seconds"] / len(x), 3),
    }


def _model(wishes: Wishes, name: str) -> Graph | None:
    file = None if wishes.models is None else wishes.models / name
    return read_twq(file).graph if file is not None and file.exists() else None
