"""Networks by name, the user's own by "module:function", and torch modules read as tables."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.errors import LabError
from thinwire.perf.network import EMBEDDING, LAST, Layer, Network, joined, norm, weighted
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
    return Network(name, layers, batch, "example", UTILISATION, told, _tokens(example))


def _tokens(example: Any) -> int:
    """Of one example: whole numbers in rows are tokens, anything else is not."""
    first = example[0] if isinstance(example, tuple) else example
    is_tokens = isinstance(first, Tensor) and first.dim() == 2 and not first.is_floating_point()
    return first.shape[1] if is_tokens else 0


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


CLASSES = 1000


def alexnet() -> Network:
    """AlexNet with its two halves (Krizhevsky et al. 2012, Caffe's bvlc_alexnet): 60,965,224 parameters."""
    convolutions = (
        ("conv1", (96, 3, 11, 11), 55),
        ("conv2", (256, 48, 5, 5), 27),
        ("conv3", (384, 256, 3, 3), 13),
        ("conv4", (384, 192, 3, 3), 13),
        ("conv5", (256, 192, 3, 3), 13),
    )
    layers = joined(
        *(weighted(name, shape, side * side) for name, shape, side in convolutions),
        weighted("fc6", (4096, 9216), 1),
        weighted("fc7", (4096, 4096), 1),
        weighted("fc8", (CLASSES, 4096), 1, LAST),
    )
    return Network("alexnet", layers, batch=128, source="Caffe's bvlc_alexnet")


def vgg_a() -> Network:
    """VGG-A, of 11 layers (Simonyan and Zisserman 2014): 132,863,336 parameters."""
    early = ((3, 64, 224), (64, 128, 112), (128, 256, 56), (256, 256, 56))
    late = ((256, 512, 28), (512, 512, 28), (512, 512, 14), (512, 512, 14))
    layers = joined(
        *(
            weighted(f"conv{k}", (wide, narrow, 3, 3), side * side)
            for k, (narrow, wide, side) in enumerate(early + late, 1)
        ),
        weighted("fc6", (4096, 512 * 7 * 7), 1),
        weighted("fc7", (4096, 4096), 1),
        weighted("fc8", (CLASSES, 4096), 1, LAST),
    )
    return Network("vgg-a", layers, batch=32, source="VGG's table 1, column A")


# in, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection, side: table 1 of the paper
_INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32, 28),
    "3b": (256, 128, 128, 192, 32, 96, 64, 28),
    "4a": (480, 192, 96, 208, 16, 48, 64, 14),
    "4b": (512, 160, 112, 224, 24, 64, 64, 14),
    "4c": (512, 128, 128, 256, 24, 64, 64, 14),
    "4d": (512, 112, 144, 288, 32, 64, 64, 14),
    "4e": (528, 256, 160, 320, 32, 128, 128, 14),
    "5a": (832, 256, 160, 320, 32, 128, 128, 7),
    "5b": (832, 384, 192, 384, 48, 128, 128, 7),
}


def _inception(name: str) -> list[Layer]:
    narrow, one, three_in, three, five_in, five, pool, side = _INCEPTIONS[name]
    shapes = (
        ("1x1", (one, narrow, 1, 1)),
        ("3x3_reduce", (three_in, narrow, 1, 1)),
        ("3x3", (three, three_in, 3, 3)),
        ("5x5_reduce", (five_in, narrow, 1, 1)),
        ("5x5", (five, five_in, 5, 5)),
        ("pool_proj", (pool, narrow, 1, 1)),
    )
    return list(joined(*(weighted(f"inception_{name}.{what}", s, side * side) for what, s in shapes)))


def googlenet() -> Network:
    """GoogLeNet without auxiliary heads (Szegedy et al. 2014, as in Caffe): 6,998,552 parameters."""
    layers = joined(
        weighted("conv1", (64, 3, 7, 7), 112 * 112),
        weighted("conv2_reduce", (64, 64, 1, 1), 56 * 56),
        weighted("conv2", (192, 64, 3, 3), 56 * 56),
        *(_inception(name) for name in _INCEPTIONS),
        weighted("fc", (CLASSES, 1024), 1, LAST),
    )
    return Network("googlenet", layers, batch=64, source="Caffe's bvlc_googlenet, no auxiliary heads")


def resnet50() -> Network:
    """ResNet-50 with the stride in the 3x3 convolution (torchvision's): 25,557,032 parameters."""
    layers = [*_normed("conv1", (64, 3, 7, 7), 112)]
    narrow = 64
    for stage, (width, blocks, side) in enumerate(((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), 1):
        for block in range(blocks):
            layers += _bottleneck(f"layer{stage}.{block}", narrow, width, side, block == 0 and stage > 1)
            narrow = 4 * width
    layers += weighted("fc", (CLASSES, 2048), 1, LAST)
    return Network("resnet50", tuple(layers), batch=64, source="torchvision's resnet50")


def _normed(name: str, shape: tuple[int, ...], side: int) -> list[Layer]:
    return [*weighted(name, shape, side * side, bias=False), *norm(f"{name}_bn", shape[0])]


def _bottleneck(name: str, narrow: int, width: int, side: int, strided: bool) -> list[Layer]:
    layers = [
        *_normed(f"{name}.conv1", (width, narrow, 1, 1), 2 * side if strided else side),
        *_normed(f"{name}.conv2", (width, width, 3, 3), side),
        *_normed(f"{name}.conv3", (4 * width, width, 1, 1), side),
    ]
    if narrow != 4 * width:
        layers += _normed(f"{name}.downsample", (4 * width, narrow, 1, 1), side)
    return layers


def _table(name: str, rows: int, width: int) -> list[Layer]:
    return [Layer(f"{name}.weight", (rows, width), 0, EMBEDDING)]


def bert_large() -> Network:
    """BERT-large, uncased, with both heads of pre-training: 336,226,108 parameters; 128 tokens an example.

    The read-out is tied to the word embedding: one tensor, used once for every token.
    """
    width, tokens = 1024, 128
    layers = joined(
        [Layer("word.weight", (30522, width), tokens, EMBEDDING)],
        _table("position", 512, width),
        _table("type", 2, width),
        norm("embedding_norm", width),
        *(_bert_block(f"block{k}", width, tokens) for k in range(24)),
        weighted("pooler", (width, width), 1),
        weighted("transform", (width, width), tokens),
        norm("transform_norm", width),
        [Layer("read_out.bias", (30522,))],
        weighted("next_sentence", (2, width), 1, LAST),
    )
    return Network("bert-large", layers, 32, "sequence of 128 tokens", 0.4, "bert-large-uncased", tokens)


def _bert_block(name: str, width: int, tokens: int) -> tuple[Layer, ...]:
    return joined(
        *(
            weighted(f"{name}.{what}", (width, width), tokens)
            for what in ("query", "key", "value", "attention")
        ),
        norm(f"{name}.norm1", width),
        weighted(f"{name}.up", (4 * width, width), tokens),
        weighted(f"{name}.down", (width, 4 * width), tokens),
        norm(f"{name}.norm2", width),
    )


def gpt2_medium() -> Network:
    """GPT-2 medium, read-out tied to the embedding: 354,823,168 parameters; 1024 tokens an example."""
    width, tokens = 1024, 1024
    layers = joined(
        [Layer("wte.weight", (50257, width), tokens, EMBEDDING)],
        _table("wpe", 1024, width),
        *(_gpt2_block(f"block{k}", width, tokens) for k in range(24)),
        norm("norm", width),
    )
    return Network("gpt2-medium", layers, 8, "sequence of 1024 tokens", 0.4, "gpt2-medium", tokens)


def _gpt2_block(name: str, width: int, tokens: int) -> tuple[Layer, ...]:
    return joined(
        norm(f"{name}.norm1", width),
        weighted(f"{name}.qkv", (3 * width, width), tokens),
        weighted(f"{name}.attention", (width, width), tokens),
        norm(f"{name}.norm2", width),
        weighted(f"{name}.up", (4 * width, width), tokens),
        weighted(f"{name}.down", (width, 4 * width), tokens),
    )


def llama7b() -> Network:
    """A transformer with the shapes of Llama 2 7B: 6,738,415,616 parameters; 4096 tokens an example."""
    width, hidden, tokens = 4096, 11008, 4096
    layers = joined(
        _table("embedding", 32000, width),
        *(_llama_block(f"block{k}", width, hidden, tokens) for k in range(32)),
        norm("norm", width, bias=False),
        weighted("read_out", (32000, width), tokens, LAST, bias=False),
    )
    return Network("llama-7b", layers, 1, "sequence of 4096 tokens", 0.4, "Llama 2 7B", tokens)


def _llama_block(name: str, width: int, hidden: int, tokens: int) -> tuple[Layer, ...]:
    square = [
        layer
        for what in ("query", "key", "value", "attention")
        for layer in weighted(f"{name}.{what}", (width, width), tokens, bias=False)
    ]
    return joined(
        norm(f"{name}.norm1", width, bias=False),
        square,
        norm(f"{name}.norm2", width, bias=False),
        weighted(f"{name}.gate", (hidden, width), tokens, bias=False),
        weighted(f"{name}.up", (hidden, width), tokens, bias=False),
        weighted(f"{name}.down", (width, hidden), tokens, bias=False),
    )


NETWORKS: Mapping[str, Callable[[], Network]] = MappingProxyType(
    {
        "alexnet": alexnet,
        "vgg-a": vgg_a,
        "googlenet": googlenet,
        "resnet50": resnet50,
        "bert-large": bert_large,
        "gpt2-medium": gpt2_medium,
        "llama-7b": llama7b,
    }
)


def network_named(text: str, others: Sequence[str] = ()) -> Network:
    """The network of a name, or of a function in a module: "my_package.nets:build".

    The function takes no arguments and returns a torch module, a pair of a module and an example input (then
    the time of each layer follows from its size there), or a Network. `others` are names known elsewhere,
    for the error.
    """
    if ":" in text:
        return _own(text)
    if text not in NETWORKS:
        known = [*NETWORKS, *others]
        close = difflib.get_close_matches(text, known, 1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise LabError(
            f'there is no network "{text}": {hint}known are {", ".join(known)}, or name your own by '
            'module:function, as in "my_nets:build"'
        )
    return NETWORKS[text]()


def _own(text: str) -> Network:
    module_name, _, function_name = text.partition(":")
    if not module_name or not function_name:
        raise LabError(f'"{text}" is no module:function: write it as in "my_nets:build"')
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: a file beside the user is found
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's own code raises while it is imported
        raise LabError(
            f'"{text}": {module_name} cannot be imported ({type(error).__name__}: {error}): '
            "run from the folder it is in, or install it"
        ) from error
    finally:
        sys.path.pop(0)
    made = _called(module, function_name, text)
    return made if isinstance(made, Network) else _read(made, text)


def _called(module: Any, name: str, text: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        raise LabError(f'"{text}": {module.__name__} has no function {name}')
    try:
        return function()
    except Exception as error:
        raise LabError(
            f'"{text}": {name}() fails ({type(error).__name__}: {error}): it must work without arguments'
        ) from error


def _read(made: Any, text: str) -> Network:
    from thinwire.perf.networks import read_module

    module, example = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    return read_module(module, example, text)
