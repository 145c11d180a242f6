"""Calls the native kernels with damaged payloads, tables and sizes; meant for a build with sanitizers.

    make sanitize
    python tests/kernels/fuzz.py FOLDER [--payloads 1000000] [--seconds S] [--seed 0] [--decoders-only]

FOLDER holds the extension module. Every payload goes to all back ends of this machine. A call may work or
raise ValueError or TypeError; a sanitizer ends the process at anything else. All back ends must do the same,
down to the bits of the results. Every kernel must have been called both ways, or the fuzzing is at fault.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from fuzz_calls import DECODERS, ENCODERS, Args, Calls

NASTY = (
    0,
    1,
    -1,
    7,
    31,
    33,
    65536,
    2**31 - 1,
    -(2**31),
    2**32,
    2**58,
    2**59,
    2**62,
    2**63 - 32,
    2**63 - 1,
    -(2**63),
)
RIGHT_SHARE = 0.65  # of all payloads have the right length, at least half of them are asked for
ENCODER_SHARE = 0.1  # of the turns also call the encoders


@dataclass
class Tally:
    """What came of the calls."""

    back_ends: list[str]
    payloads: int = 0
    right_length: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        names = sorted({name for name, _ in self.outcomes})
        table = [
            f"{n:20} {self.outcomes[n, 'worked']:9,} worked {self.outcomes[n, 'refused']:9,} refused"
            for n in names
        ]
        share, where = self.right_length / max(self.payloads, 1), ", ".join(self.back_ends)
        return [*table, f"{self.payloads:,} payloads, {share:.1%} of the right length, each on {where}"]

    def check(self, names: tuple[str, ...]) -> None:
        lazy = [
            name for name in names if not (self.outcomes[name, "worked"] and self.outcomes[name, "refused"])
        ]
        assert not lazy, f"called one way only: {lazy}"
        assert 2 * self.right_length >= self.payloads, "less than half of the payloads had the right length"


def wrong_length(rng: random.Random, payload: np.ndarray) -> np.ndarray:
    """Cut off, drawn out, or nothing at all; never as long as it was. Matrices lose or get rows."""
    length = len(payload)
    shorter = rng.randrange(length) if length else 1
    other = rng.choice((shorter, length + 1, 2 * length + 1, 0 if length else 1))
    return np.resize(payload, (other, *payload.shape[1:])).copy()


def damage(rng: random.Random, args: Args) -> None:
    """Changes one argument, whatever it is."""
    place = rng.randrange(len(args))
    value = args[place]
    if isinstance(value, np.ndarray) and value.size:
        if rng.random() < 0.4:
            args[place] = wrong_length(rng, value)
        elif value.dtype == np.int64:
            value[rng.randrange(value.size)] = rng.choice(NASTY)
        else:
            bytes_of = np.ascontiguousarray(value).reshape(-1).view("u1")
            for _ in range(3):
                bytes_of[rng.randrange(bytes_of.size)] = rng.randrange(256)
            args[place] = bytes_of.view(value.dtype).reshape(value.shape)
    elif isinstance(value, int) and not isinstance(value, bool):
        args[place] = rng.choice(NASTY)


def spoiled(rng: random.Random, args: Args) -> bool:
    """Spoils a call of a decoder; True if its payload, which may hold anything, has the right length."""
    kind = rng.random()
    if kind < RIGHT_SHARE:
        return True
    if kind < RIGHT_SHARE + 0.15:
        args[0] = wrong_length(rng, args[0])
    else:
        for _ in range(rng.randint(1, 2)):
            damage(rng, args)
    return False


def same(a: Any, b: Any) -> bool:
    """The same bits; NaN is NaN, whatever its bits."""
    if a.tobytes() == b.tobytes():
        return True
    return a.dtype == np.float32 and bool(
        np.all((a.view("u4") == b.view("u4")) | (np.isnan(a) & np.isnan(b)))
    )


class Fuzzer:
    """Calls kernels of all back ends with the same arguments."""

    def __init__(self, native: ModuleType, seed: int) -> None:
        self.names = list(native.instruction_sets())
        self.families = {
            (isa, family): getattr(native, family.capitalize())(isa)
            for isa in self.names
            for family in {name.split("_")[0] for name in (*DECODERS, *ENCODERS)}
        }
        self.calls = Calls(seed, self.families[self.names[0], "topk"])
        self.tally = Tally(self.names)

    def decoder(self, name: str) -> None:
        args = getattr(self.calls, name)()
        self.tally.right_length += spoiled(self.calls.random, args)
        self.tally.payloads += 1
        self.call(name, args)

    def encoder(self, name: str) -> None:
        args = getattr(self.calls, name)()
        for _ in range(self.calls.integer(0, 2)):
            damage(self.calls.random, args)
        self.call(name, args)

    def call(self, name: str, args: Args) -> None:
        """Runs it on every back end; what they write must be the same."""
        outcomes, results = [], []
        for isa in self.names:
            out = args[-1].copy() if isa != self.names[-1] else args[-1]
            outcomes.append(self._outcome(isa, name, [*args[:-1], out]))
            results.append(out)
        assert len(set(outcomes)) == 1, f"{name}: {dict(zip(self.names, outcomes, strict=True))}"
        self.tally.outcomes[name, outcomes[0]] += 1
        if outcomes[0] == "worked":
            for isa, result in zip(self.names, results, strict=True):
                assert same(result, results[0]), f"{name}: {isa} and {self.names[0]} give different bits"

    def _outcome(self, isa: str, name: str, args: Args) -> str:
        family, method = name.split("_", 1)
        try:
            getattr(self.families[isa, family], method)(*args)
        except (ValueError, TypeError):
            return "refused"
        return "worked"


def fuzz(native: ModuleType, payloads: int, seconds: float, seed: int, decoders_only: bool = False) -> Tally:
    """Decoders in turn until there were so many payloads, or the time is over; the others now and then."""
    fuzzer = Fuzzer(native, seed)
    end = time.monotonic() + seconds
    while fuzzer.tally.payloads < payloads and time.monotonic() < end:
        for name in DECODERS:
            fuzzer.decoder(name)
        if not decoders_only and fuzzer.calls.random.random() < ENCODER_SHARE:
            for name in ENCODERS:
                fuzzer.encoder(name)
    fuzzer.tally.check(DECODERS if decoders_only else (*DECODERS, *ENCODERS))
    return fuzzer.tally


def load(folder: Path) -> ModuleType:
    """The extension module in a folder."""
    spec = importlib.util.spec_from_file_location("_native", next(folder.glob("_native*.so")))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fuzz the native kernels.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--payloads", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then at the latest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decoders-only", action="store_true", help="for the coverage of the decoders")
    options = parser.parse_args()
    native = load(options.folder)
    print(
        *fuzz(native, options.payloads, options.seconds, options.seed, options.decoders_only).lines(),
        sep="\n",
    )
