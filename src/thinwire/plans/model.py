"""What a policy may know of a model: its tensors, and which of them are embeddings, last or tied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from thinwire.tensors.spec import Spec

WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")  # torch.compile, activation checkpointing


@dataclass(frozen=True)
class Model:
    """What a policy may know of a model besides its tensors: embeddings, the last layer, what is tied.

    A tensor that several modules share (`head.weight = wte.weight`) is one tensor under its first name;
    `tied` has its other names. It is both an embedding and a part of the last layer.
    """

    specs: tuple[Spec, ...]
    embeddings: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    tied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, module: nn.Module) -> Model:
        """Reads a module: its trainable parameters, its embeddings, and its last layer with a matrix.

        The last layer is the last module that has a matrix of its own and is no embedding, be that matrix
        tied or frozen.
        """
        names = parameter_names(module)
        trainable = {names[id(p)]: p for p in module.parameters() if p.requires_grad}
        specs = tuple(Spec(name, tuple(p.shape), p.dtype) for name, p in trainable.items())
        tied: dict[str, tuple[str, ...]] = {}
        for name, p in module.named_parameters(remove_duplicate=False):
            if plain_name(name) != names[id(p)]:
                tied[names[id(p)]] = (*tied.get(names[id(p)], ()), plain_name(name))
        embeddings: set[str] = set()
        inside: set[nn.Module] = set()  # what a parametrized embedding is made of is no layer
        layers = []
        for child in module.modules():
            if isinstance(child, nn.Embedding | nn.EmbeddingBag):
                embeddings.update(names[id(p)] for p in child.parameters())
                inside.update(child.modules())
            elif child not in inside and any(p.dim() >= 2 for p in child.parameters(recurse=False)):
                layers.append([names[id(p)] for p in child.parameters(recurse=False)])
        last = layers[-1] if len(layers) > 1 else []
        return cls(specs, frozenset(embeddings), frozenset(last), tied)

    def names_of(self, spec: Spec) -> tuple[str, ...]:
        """All names of a tensor; the first is the one it is kept under."""
        return (spec.name, *self.tied.get(spec.name, ()))


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers put into it: states and rules outlive torch.compile.

    >>> plain_name("_orig_mod.blocks.0._checkpoint_wrapped_module.fc.weight")
    'blocks.0.fc.weight'
    """
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def parameter_names(module: nn.Module) -> dict[int, str]:
    """The plain name of every parameter by its id; of a tied one the first name."""
    return {id(p): plain_name(name) for name, p in module.named_parameters()}
