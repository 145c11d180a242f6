"""The list the obligations run over is complete."""

from __future__ import annotations

from cases import pairs, routes, texts

import thinwire as tw
from thinwire.codecs.catalog import CATALOG
from thinwire.codecs.coder import Merge
from thinwire.routes import ROUTES, default_route_name


def test_every_name_every_merge_and_every_route_is_there() -> None:
    for name in CATALOG:
        assert any(link.strip().split(":")[0] == name for text in texts() for link in text.split(">>"))
    assert {tw.parse(text).merge for text in texts()} == set(Merge)
    assert {route for _, route in pairs()} == set(ROUTES)


def test_every_codec_can_take_its_default_route() -> None:
    for text in texts():
        assert default_route_name(tw.parse(text)) in routes(text)
