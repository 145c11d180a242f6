"""Qualities: which codecs `auto` may take, and what is known of their accuracy. Evidence, not code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from thinwire.errors import PlanError

DENSE = "dense"


SGD, ADAM = "SGD", "Adam"  # families of optimizers in which accuracy was studied
FAMILIES = (SGD, ADAM)  # as a quality: what keeps its accuracy under that family


@dataclass(frozen=True)
class Candidate:
    """A codec that `auto` may take, the least strict quality that allows it, and why: by optimizer.

    `kept`: the families under which it keeps its accuracy, shown on three seeds, or because it errs less than
    one that does.
    """

    codec: str
    quality: str
    kept: tuple[str, ...]
    sgd: str
    adam: str = "not studied"


QUALITIES = ("exact", "safe", "balanced", "aggressive")  # each allows what those before it allow
DEFAULT = "safe"
_BOTH = FAMILIES
_FINER = "errs less than qsgd:4; no study of its own"

# Differences to DDP, seed by seed. accuracy.md. SGD with momentum, in points of accuracy: CIFAR-10,
# resnet8-wide, 2,730 steps; MNIST, LeNet, 937 steps. Adam: a transformer with AdamW on tiny Shakespeare, in
# bits a character. accuracy.md, short: resnet8 on CIFAR-10 after 390 steps, LeNet on MNIST after 200.
# What 16-bit floats err: docs/background/study-errors.md, 0.0002 (fp16) and 0.0017 (bf16) of a gradient.
CANDIDATES = (
    Candidate("fp16", "safe", _BOTH, _FINER, _FINER),
    Candidate("bf16", "safe", _BOTH, _FINER, _FINER),
    Candidate("qsgd:8", "safe", _BOTH, _FINER, _FINER),
    Candidate(
        "qsgd:4",
        "safe",
        _BOTH,
        "CIFAR-10 +0.08 +- 0.43",
        "text -0.006 +- 0.009, CIFAR-10 with AdamW -0.42 +- 0.08",
    ),
    Candidate(
        "fft:0.85", "balanced", (SGD,), "CIFAR-10 +0.24 +- 0.29, MNIST -0.05 +- 0.07", "text -0.156 (1 seed)"
    ),
    Candidate(
        "terngrad:1",
        "balanced",
        (SGD,),
        "CIFAR-10 +0.10 +- 0.10, MNIST -0.05 +- 0.05",
        "text -0.172 (1 seed)",
    ),
    Candidate(
        "rotated",
        "aggressive",
        (SGD,),
        "CIFAR-10 +0.06 +- 0.53",
        "text -0.025 +- 0.003, CIFAR-10 with AdamW -0.81 +- 0.12 (2 seeds)",
    ),
    Candidate("terngrad", "aggressive", (), "CIFAR-10 -2.30 +- 0.11 (2 seeds), short -1.31 +- 0.45"),
    Candidate(
        "powersgd:4", "aggressive", (), "MNIST -0.03 +- 0.10, CIFAR-10 rank 8 -0.54, short -2.38 +- 0.82"
    ),
    Candidate("sign", "aggressive", (), "short -3.35 +- 0.83, on MNIST -0.21 +- 0.08"),
    Candidate("topk:0.01", "aggressive", (), "short -8.59 +- 0.63, on MNIST -0.82 +- 0.06"),
)
# Never taken, and why: these change more than the exchange, or cannot be judged by a trial of a few steps.
NEVER: Mapping[str, str] = MappingProxyType(
    {
        "dgc": "it wants an optimizer without momentum",
        "gradiveq": "it sends everything in its first hundred steps: a short trial does not see it compress",
    }
)


def candidates(quality: str) -> tuple[str, ...]:
    """The codecs that a quality allows beside sending everything.

    >>> candidates("exact")
    ()
    >>> candidates("safe")
    ('fp16', 'bf16', 'qsgd:8', 'qsgd:4')
    >>> candidates("Adam")
    ('fp16', 'bf16', 'qsgd:8', 'qsgd:4')
    """
    if quality in FAMILIES:
        return tuple(candidate.codec for candidate in CANDIDATES if quality in candidate.kept)
    if quality not in QUALITIES:
        known = f"{', '.join(QUALITIES)}, and by optimizer {', '.join(FAMILIES)}"
        raise PlanError(f'there is no quality "{quality}": known are {known}')
    allowed = QUALITIES[: QUALITIES.index(quality) + 1]
    return tuple(candidate.codec for candidate in CANDIDATES if candidate.quality in allowed)


_BY_NODES = " by nodes"


@dataclass(frozen=True)
class Selection:
    """What gradients travel by; its text is what pilots, states and reports have.

    >>> Selection.of("topk:0.01 by nodes"), str(Selection("terngrad"))
    (Selection(codec='topk:0.01', by_nodes=True), 'terngrad')
    """

    codec: str
    by_nodes: bool = False

    @classmethod
    def of(cls, text: str) -> Selection:
        return cls(text.removesuffix(_BY_NODES), text.endswith(_BY_NODES))

    def __str__(self) -> str:
        return self.codec + (_BY_NODES if self.by_nodes else "")


def choices(quality: str, nodes: bool) -> tuple[str, ...]:
    """What a quality allows beside plain DDP: its codecs, and where workers share `nodes` those by nodes.

    To send everything by nodes is one of them: it is exact but for the order of the sums.

    >>> choices("safe", nodes=True)[3:6]
    ('qsgd:4', 'dense by nodes', 'fp16 by nodes')
    """
    flat = candidates(quality)
    nested = (DENSE, *flat) if nodes and flat else ()
    return (*flat, *(str(Selection(codec, by_nodes=True)) for codec in nested))
