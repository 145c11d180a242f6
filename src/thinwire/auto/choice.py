"""A choice of `auto`: a codec, and whether every worker exchanges or the leaders of nodes do."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.auto.qualities import DENSE, candidates

_BY_NODES = " by nodes"


@dataclass(frozen=True)
class Choice:
    """What gradients travel by; its text is what pilots, states and reports have.

    >>> Choice.of("topk:0.01 by nodes"), str(Choice("terngrad"))
    (Choice(codec='topk:0.01', by_nodes=True), 'terngrad')
    """

    codec: str
    by_nodes: bool = False

    @classmethod
    def of(cls, text: str) -> Choice:
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
    return (*flat, *(str(Choice(codec, by_nodes=True)) for codec in nested))
