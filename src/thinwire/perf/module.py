"""A torch module read as a table: its trainable tensors and, with an example, how often each is used."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from thinwire.errors import LabError
from thinwire.perf.network import EMBEDDING, LAST, Layer, Network
from thinwire.perf.wire import model_of

UTILISATION = 0.25


def read_module(module: Any, example: Any, name: str, batch: int = 32) -> Network:
    """The network of a module; `example` is an input of one or more examples, or a tuple of inputs."""
    if not isinstance(module, nn.Module):
        raise LabError(
            f'"{name}" returns {type(module).__name__}: it must return a torch module, '
            "or a pair of a module and an example input"
        )
    model = model_of(module)
    uses = {} if example is None else _uses(module, example)
    layers = tuple(
        Layer(
            spec.name,
            tuple(spec.shape),
            uses.get(spec.name, int(example is None and len(spec.shape) > 1)),
            EMBEDDING if spec.name in model.embeddings else LAST if spec.name in model.last else "",
        )
        for spec in model.specs
    )
    told = "uses counted on an example" if example is not None else "no example: each weight counts once"
    return Network(name, layers, batch, "example", UTILISATION, told)


def _uses(module: nn.Module, example: Any) -> dict[str, int]:
    """Runs the module once and counts the outputs of every layer that has a matrix, per example."""
    inputs = example if isinstance(example, tuple) else (example,)
    examples = max(1, inputs[0].shape[0])
    found: dict[str, int] = {}

    def note(name: str) -> Any:
        def hook(layer: nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                for own, parameter in layer.named_parameters(recurse=False):
                    if parameter.dim() > 1:
                        whole = f"{name}.{own}" if name else own
                        positions = output.numel() // examples // parameter.shape[0]
                        found[whole] = found.get(whole, 0) + max(1, positions)

        return hook

    handles = [
        layer.register_forward_hook(note(name))
        for name, layer in module.named_modules()
        if not isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    ]
    try:
        with torch.no_grad():
            module(*inputs)
    except Exception as error:
        raise LabError(f"the example does not fit the module ({type(error).__name__}: {error})") from error
    finally:
        for handle in handles:
            handle.remove()
    return found
