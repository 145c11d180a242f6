"""The routes by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from thinwire.errors import PlanError
from thinwire.routes.allgather import AllGather
from thinwire.routes.allreduce import AllReduce
from thinwire.routes.base import Route
from thinwire.routes.sharded import Sharded

ROUTES: Mapping[str, Route] = MappingProxyType(
    {route.name: route for route in (AllReduce(), AllGather(), Sharded())}
)


def route_named(name: str) -> Route:
    if name not in ROUTES:
        raise PlanError(f'there is no route "{name}": known are {", ".join(ROUTES)}')
    return ROUTES[name]
