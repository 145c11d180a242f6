"""The table of benches: what `thinwire private bench NAME` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from thinwire.errors import ThinwireError
from thinwire_lab.private.documents import documents
from thinwire_lab.private.fuzz import SHARES, fuzz
from thinwire_lab.private.ladder import ladder
from thinwire_lab.private.latency import latency
from thinwire_lab.private.operators import operators
from thinwire_lab.private.rival import rival
from thinwire_lab.private.speed import batch, convolutions
from thinwire_lab.private.whole import cifar10, digits
from thinwire_lab.private.wishes import Row, Say, Wishes

FUZZ_CASES = 120_000


def fuzzing(wishes: Wishes, say: Say) -> Iterator[Row]:
    """One row per victim of the fuzzer."""
    for victim, share in SHARES.items():
        cases = round(FUZZ_CASES * share)
        say(f"{victim}, {cases} cases")
        settings = {"victim": victim, "cases": cases, "seed": 0}
        yield wishes.once("fuzz", settings, lambda *each: fuzz(*each).row(), victim, cases)


def everything(wishes: Wishes, say: Say) -> Iterator[Row]:
    """All benches, one after the other, for a quiet machine; what lacks something is skipped."""
    for name, bench in BENCHES.items():
        if name == "all":
            continue
        say(f"--- {name}")
        try:
            yield from bench(wishes, say)
        except ThinwireError as error:
            say(f"{name} is skipped: {error}")


BENCHES: Mapping[str, Callable[[Wishes, Say], Iterator[Row]]] = MappingProxyType(
    {
        "ladder": ladder,
        "digits": digits,
        "cifar10": cifar10,
        "operators": operators,
        "latency": latency,
        "convolutions": convolutions,
        "batch": batch,
        "rival": rival,
        "fuzz": fuzzing,
        "tables": documents,
        "all": everything,
    }
)
