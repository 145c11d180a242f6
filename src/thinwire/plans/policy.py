"""A model (names and kinds of tensors) and a policy: which codec, feedback and route a tensor gets."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from thinwire.codecs.codec import Codec, CodecLike, codec_of, parse
from thinwire.errors import PlanError
from thinwire.tensors import Spec

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


MIN_NUMEL = 1024
KEEP_DENSE = ("vector", "small", "embedding", "last")


@dataclass(frozen=True)
class Choice:
    """What a tensor gets, and the reason to print beside it."""

    codec: Codec
    reason: str


@dataclass(frozen=True)
class Policy:
    """Named rules first, then what stays dense by rule, then the codec for the rest.

    `keep_dense` names the safe defaults: "vector" (norms, biases: at most one dimension), "small" (fewer than
    `min_numel` elements), "embedding", "last" (the last layer: its gradients are skewed). A rule whose
    pattern is not "*" overrules them; `keep_dense=()` switches them off. `sensitive`: what these tensors
    travel by instead of dense; beside a codec of few bits they would be a large part of the bytes.
    """

    rules: tuple[tuple[str, Codec], ...]
    rest: Codec
    keep_dense: tuple[str, ...] = KEEP_DENSE
    min_numel: int = MIN_NUMEL
    sensitive: Codec | None = None

    @classmethod
    def of(
        cls,
        codec: CodecLike | Mapping[str, CodecLike],
        keep_dense: str | Iterable[str] = KEEP_DENSE,
        min_numel: int = MIN_NUMEL,
        total_steps: int | None = None,
        sensitive: CodecLike | None = None,
    ) -> Policy:
        """Reads what a user may give: a codec (a text or an object), or patterns with codecs.

        `total_steps`: how long the run is, for texts that name parts of it ("start=5%").
        """
        finer = None if sensitive is None else codec_of(sensitive, total_steps)
        if total_steps is not None and total_steps < 1:
            raise PlanError(f"total_steps={total_steps} must be the number of steps of the run, at least 1")
        keep = (keep_dense,) if isinstance(keep_dense, str) else tuple(keep_dense)
        for word in keep:
            if word not in KEEP_DENSE:
                raise PlanError(f'keep_dense: "{word}" is no rule: known are {", ".join(KEEP_DENSE)}')
        if not isinstance(codec, Mapping):
            return cls((), codec_of(codec, total_steps), keep, min_numel, finer)
        if not codec:
            raise PlanError(
                "the codec {} has no rules, and everything would stay dense: write for example "
                '{"fc*": "terngrad", "*": "dense"}, or "dense" if that is meant'
            )
        named = {pattern: codec_of(value, total_steps) for pattern, value in codec.items()}
        rest = named.pop("*", None) or parse("dense")
        return cls(tuple(named.items()), rest, keep, min_numel, finer)

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """Every codec that a tensor may get: of the rules, of what is sensitive, then that of the rest."""
        finer = () if self.sensitive is None else (self.sensitive,)
        return (*(codec for _, codec in self.rules), *finer, self.rest)

    def check(self, model: Model) -> None:
        """Refuses rules that match no tensor: a typo would silently leave a layer dense."""
        for pattern, _ in self.rules:
            if not any(_matches(pattern, model.names_of(spec)) for spec in model.specs):
                names = ", ".join(spec.name for spec in model.specs[:3])
                raise PlanError(f'rule "{pattern}" matches no tensor of the model: names are {names}, ...')

    def choose(self, spec: Spec, model: Model) -> Choice:
        """The first rule that fits one of the tensor's names."""
        choice = self._first(spec, model)
        others = model.tied.get(spec.name)
        return choice if not others else replace(choice, reason=f"{choice.reason}; tied: {', '.join(others)}")

    def _first(self, spec: Spec, model: Model) -> Choice:
        for pattern, codec in self.rules:
            if _matches(pattern, model.names_of(spec)):
                return _fitting(codec, spec, f'rule "{pattern}"')
        reason = self._dense_reason(spec, model)
        if reason and not self.rest.near_lossless:
            return _fitting(self.sensitive or parse("dense"), spec, reason)
        return _fitting(self.rest, spec, "the rest")

    def _dense_reason(self, spec: Spec, model: Model) -> str | None:
        reasons = {
            "vector": ("norm or bias", len(spec.shape) <= 1),
            "embedding": ("embedding", spec.name in model.embeddings),
            "last": ("last layer", spec.name in model.last),
            "small": (f"fewer than {self.min_numel} elements", spec.numel < self.min_numel),
        }
        for word in self.keep_dense:
            text, fits = reasons[word]
            if fits:
                return text
        return None


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _fitting(codec: Codec, spec: Spec, reason: str) -> Choice:
    """The codec, or dense where the codec itself says that it does not fit."""
    refusal = codec.refuses(spec)
    return Choice(codec, reason) if refusal is None else Choice(parse("dense"), refusal)
