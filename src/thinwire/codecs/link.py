"""A link: one part of a codec's chain, a stage or a coder. Frozen options, no data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from thinwire.texts.options import show_options


class Builder(Protocol):
    """A codec in the making (codec.py): every link tells it what it is."""

    def add_linear(self, stage: Any) -> None: ...

    def add_selecting(self, stage: Any) -> None: ...

    def end_with(self, coder: Any) -> None: ...


class ChainLinks:
    """ChainLinks one behind the other, as they are written with ">>".

    >>> from thinwire.codecs.coders.floats import Cast
    >>> from thinwire.codecs.stages.topk import TopK
    >>> (TopK(0.01) >> Cast("bf16")).name
    'TopK() >> Cast(to=bf16)'
    """

    def __init__(self, links: Iterable[ChainLink]) -> None:
        self.links = tuple(links)

    @property
    def name(self) -> str:
        return " >> ".join(link.name for link in self.links)

    def __rshift__(self, behind: ChainLink | ChainLinks) -> ChainLinks:
        return ChainLinks((*self.links, *behind.links))


class ChainLink(ABC):
    """What stages and coders have in common."""

    default_coder: ClassVar[ChainLink | None] = None  # what packs the numbers of a chain that ends here

    @property
    def memory(self) -> str:
        """What should hold back what this link drops: "residual" if it is biased."""
        return "none"

    @property
    def dense_steps(self) -> int:
        """Steps before the first that it compresses, in which a codec that ends in it sends everything."""
        return 0

    @property
    def name(self) -> str:
        """Its class with every option that is not its default: equal names mean equal bytes."""
        return f"{type(self).__name__}({show_options(self)})"

    @property
    def links(self) -> tuple[ChainLink, ...]:
        """Itself, as a chain of one."""
        return (self,)

    def __rshift__(self, behind: ChainLink | ChainLinks) -> ChainLinks:
        return ChainLinks((*self.links, *behind.links))

    @abstractmethod
    def join(self, builder: Builder) -> None:
        """Tells the builder which kind of link it is."""
