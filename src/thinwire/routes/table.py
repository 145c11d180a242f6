"""The routes by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from thinwire.routes.allgather import AllGather
from thinwire.routes.allreduce import AllReduce
from thinwire.routes.base import Route
from thinwire.routes.sharded import Sharded
from thinwire.texts.names import check_name

ROUTES: Mapping[str, Route] = MappingProxyType(
    {route.name: route for route in (AllReduce(), AllGather(), Sharded())}
)


def route_named(name: str) -> Route:
    check_name("route", name, ROUTES)
    return ROUTES[name]
