"""Qualities: which codecs `auto` may take, and what is known of their accuracy. Evidence, not code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from thinwire.errors import PlanError

DENSE = "dense"


@dataclass(frozen=True)
class Candidate:
    """A codec that `auto` may take, the least strict quality that allows it, and why."""

    codec: str
    quality: str
    evidence: str


QUALITIES = ("exact", "safe", "balanced", "aggressive")  # each allows what those before it allow

# Differences to DDP in points of accuracy, seed by seed. docs/choosing.md: CIFAR-10, resnet8-wide, 2,730
# steps; MNIST, LeNet, 937 steps; text, a transformer with AdamW on tiny Shakespeare, in bits a character.
# docs/accuracy.md, short: resnet8 on CIFAR-10 after 390 steps, LeNet on MNIST after 200.
CANDIDATES = (
    Candidate("fp16", "safe", "11 bits of every number are kept; no study"),
    Candidate("qsgd:8", "safe", "finer than qsgd:4; no study of its own"),
    Candidate("qsgd:4", "safe", "CIFAR-10 +0.08 +- 0.43, text -0.006 +- 0.009"),
    Candidate("fft:0.85", "balanced", "CIFAR-10 +0.24 +- 0.29, MNIST -0.05 +- 0.07, text -0.156 (1 seed)"),
    Candidate("terngrad:1", "balanced", "CIFAR-10 +0.10 +- 0.10, MNIST -0.05 +- 0.05, text -0.172 (1 seed)"),
    Candidate("terngrad", "aggressive", "CIFAR-10 -2.30 +- 0.11 (2 seeds), short -1.31 +- 0.45"),
    Candidate("powersgd:4", "aggressive", "MNIST -0.03 +- 0.10, CIFAR-10 rank 8 -0.54, short -2.38 +- 0.82"),
    Candidate("sign", "aggressive", "short -3.35 +- 0.83, on MNIST -0.21 +- 0.08"),
    Candidate("topk:0.01", "aggressive", "short -8.59 +- 0.63, on MNIST -0.82 +- 0.06"),
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
    ('fp16', 'qsgd:8', 'qsgd:4')
    """
    if quality not in QUALITIES:
        raise PlanError(f'there is no quality "{quality}": known are {", ".join(QUALITIES)}')
    allowed = QUALITIES[: QUALITIES.index(quality) + 1]
    return tuple(candidate.codec for candidate in CANDIDATES if candidate.quality in allowed)
