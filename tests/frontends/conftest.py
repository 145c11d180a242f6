"""These tests need the frameworks: `make test-frontends` installs them, `make test` leaves them out."""

from __future__ import annotations

from importlib.util import find_spec

MISSING = [name for name in ("lightning", "accelerate", "transformers", "ray") if find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []
