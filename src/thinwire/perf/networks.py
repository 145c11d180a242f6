"""Networks by name, or the user's own by "module:function"."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from thinwire.errors import LabError
from thinwire.perf.convnets import alexnet, googlenet, resnet50, vgg_a
from thinwire.perf.network import Network
from thinwire.perf.transformers import bert_large, gpt2_medium, llama7b

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
    from thinwire.perf.module import read_module

    module, example = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    return read_module(module, example, text)
