"""One process that forks the scripts of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from example_job import Server


@pytest.fixture(scope="session")
def scripts() -> Iterator[Server]:
    with Server() as running:
        yield running
