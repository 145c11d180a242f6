"""The list of error feedback by name, and the parser of texts such as "momentum:0.9,nesterov=on"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from thinwire.feedback.base import ErrorFeedback, NoFeedback
from thinwire.feedback.momentum import Momentum, MomentumOptions
from thinwire.feedback.residual import (
    OWNER,
    PENDING,
    Ef21,
    OwnerResidual,
    PendingResidual,
    Residual,
    ResidualOptions,
)
from thinwire.texts import check_name, option_texts, read_options, show_options


@dataclass(frozen=True)
class NoOptions:
    """For error feedback without options."""


@dataclass(frozen=True)
class FeedbackKind:
    """Error feedback by name: its options, the option a bare value is for, how it is made for N workers."""

    options: type
    make: Callable[[Any, int], ErrorFeedback]
    bare: str | None = None


FEEDBACKS: Mapping[str, FeedbackKind] = MappingProxyType(  # the names are in texts.py too
    {
        "none": FeedbackKind(NoOptions, lambda options, world: NoFeedback()),
        "residual": FeedbackKind(ResidualOptions, Residual),
        "momentum": FeedbackKind(MomentumOptions, Momentum, bare="factor"),
        "ef21": FeedbackKind(NoOptions, lambda options, world: Ef21()),
    }
)


def make_feedback(text: str, world: int = 1) -> ErrorFeedback:
    """The error feedback a text asks for: a name, with options as in a codec text.

    States also have pending residuals and those of owners, which no text asks for.
    """
    if text == PENDING:
        return PendingResidual()
    if text == OWNER:
        return OwnerResidual()
    kind, options = _read(text)
    return kind.make(options, world)


def whole_tensors(text: str) -> bool:
    """True if it must see all elements of a tensor at once."""
    return make_feedback(text).whole_tensors


def uses_rates(text: str) -> bool:
    """True if it needs learning rates."""
    return make_feedback(text).uses_rates


def uses_norm(text: str) -> bool:
    """True if it needs the norm of the whole gradient."""
    return make_feedback(text).uses_norm


def exact_mean(text: str) -> bool:
    """True if it needs the mean of what all ranks sent, as it is."""
    return make_feedback(text).exact_mean


def feedback_text(text: str) -> str:
    """The one way to write it: ranks compare these texts, and states are saved under them.

    >>> feedback_text("momentum: factor=0.90, clip=off")
    'momentum'
    """
    _, options = _read(text)
    shown = show_options(options)
    return feedback_name(text) + (f":{shown}" if shown else "")


def feedback_options(text: str) -> Any:
    """The options of the error feedback a text asks for."""
    return _read(text)[1]


def feedback_name(text: str) -> str:
    return text.partition(":")[0].strip()


def _read(text: str) -> tuple[FeedbackKind, Any]:
    name = feedback_name(text)
    check_name("feedback", text, FEEDBACKS)
    kind, where = FEEDBACKS[name], f'feedback "{text}"'
    texts = option_texts(text.partition(":")[2], kind.bare, name, where)
    return kind, kind.options(**read_options(kind.options, texts, f"{where}: {name}"))
