"""The one list of memories, and the parser of memory texts such as "momentum:0.9,nesterov=on"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from thinwire.feedback.base import ErrorFeedback, NoFeedback
from thinwire.feedback.momentum import Momentum, MomentumOptions
from thinwire.feedback.residual import LEFTOVER, Ef21, PendingResidual, Residual, ResidualOptions
from thinwire.texts import check_name, option_texts, read_options, show_options


@dataclass(frozen=True)
class NoOptions:
    """For memories that cannot be tuned."""


@dataclass(frozen=True)
class FeedbackKind:
    """A memory by name: its options, the option a bare value is for, and how it is made for N workers."""

    options: type
    make: Callable[[Any, int], ErrorFeedback]
    bare: str | None = None


MEMORIES: Mapping[str, FeedbackKind] = MappingProxyType(  # the names are in texts.py too
    {
        "none": FeedbackKind(NoOptions, lambda options, world: NoFeedback()),
        "residual": FeedbackKind(ResidualOptions, Residual),
        "momentum": FeedbackKind(MomentumOptions, Momentum, bare="factor"),
        "ef21": FeedbackKind(NoOptions, lambda options, world: Ef21()),
    }
)


def make_memory(text: str, world: int = 1) -> ErrorFeedback:
    """The memory a text asks for: a name, with options as in a codec text ("momentum:0.9,nesterov=on").

    States also know "leftover", which nobody can ask for.
    """
    if text == LEFTOVER:
        return PendingResidual()
    kind, options = _read(text)
    return kind.make(options, world)


def whole_tensors(text: str) -> bool:
    """True if a memory must see all elements of a tensor at once."""
    return make_memory(text).whole_tensors


def uses_rates(text: str) -> bool:
    """True if a memory goes by learning rates."""
    return make_memory(text).uses_rates


def uses_norm(text: str) -> bool:
    """True if a memory goes by the norm of the whole gradient."""
    return make_memory(text).uses_norm


def memory_text(text: str) -> str:
    """The one way to write a memory: ranks compare these texts, and states are kept under them.

    >>> memory_text("momentum: factor=0.90, clip=off")
    'momentum'
    """
    _, options = _read(text)
    shown = show_options(options)
    return memory_name(text) + (f":{shown}" if shown else "")


def memory_options(text: str) -> Any:
    """The options of the memory a text asks for."""
    return _read(text)[1]


def memory_name(text: str) -> str:
    return text.partition(":")[0].strip()


def _read(text: str) -> tuple[FeedbackKind, Any]:
    name = memory_name(text)
    check_name("feedback", text, MEMORIES)
    kind, where = MEMORIES[name], f'memory "{text}"'
    texts = option_texts(text.partition(":")[2], kind.bare, name, where)
    return kind, kind.options(**read_options(kind.options, texts, f"{where}: {name}"))
