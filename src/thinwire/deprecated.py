"""Former names: they work for one release, with a warning that says the present name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from thinwire.errors import PlanError

P = ParamSpec("P")
R = TypeVar("R")


def former_arguments(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Lets callers pass arguments under their former names.

    >>> @former_arguments(memory="feedback")
    ... def chosen(feedback): return feedback
    >>> with warnings.catch_warnings(action="ignore"): chosen(memory="residual")
    'residual'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given: dict[str, Any] = dict(kwargs)
            for former, name in names.items():
                old = given.pop(former, None)
                if old is None:
                    continue
                if given.get(name) is not None:
                    raise PlanError(
                        f"{former}= is the former name of {name}=, and both are given: leave it out"
                    )
                warnings.warn(f"{former}= is called {name}= now", DeprecationWarning, stacklevel=2)
                given[name] = old
            return function(*args, **given)

        return call

    return decorate


class FormerAttribute:
    """An attribute under its former name: `memory = FormerAttribute("feedback")`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, former: str) -> None:
        self.former = former

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        text = f"{owner.__name__}.{self.former} is called {self.name} now"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(instance, self.name)


def take_former_names(cls: type, names: Mapping[str, str]) -> None:
    """Gives a user's class, which defines attributes under former names, the present ones; for subclasses."""
    for former, name in names.items():
        if former in vars(cls) and name not in vars(cls):
            warnings.warn(f"{cls.__name__}.{former} is called {name} now", DeprecationWarning, stacklevel=4)
            setattr(cls, name, vars(cls)[former])
