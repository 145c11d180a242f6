"""The verdict: does FFT err less than the others on these gradients, as its paper says?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinwire_lab.study.errors import Error, Finding

FFT = ("fft", "fft whole")
FALLEN = 0.9  # a run whose loss ends above this share of its first one has hardly learnt
RIVALS = ("qsgd", "qsgd l2", "terngrad", "topk", "topk fp32")  # those the paper names, in our variants


@dataclass(frozen=True)
class Round:
    """One comparison at equal bits: FFT's error over the rival's; below 1 FFT errs less."""

    moment: str
    target: float
    ratio: float

    @property
    def won(self) -> bool:
        return self.ratio < 1


@dataclass(frozen=True)
class Duel:
    """FFT against one rival, over all moments and all targets that both meet."""

    rival: str
    rounds: tuple[Round, ...]

    @property
    def wins(self) -> int:
        return sum(one.won for one in self.rounds)

    @property
    def outcome(self) -> str:
        """Who errs less, and where both do: at which bits or at which moments, if that tells them apart."""
        if self.wins in (0, len(self.rounds)):
            return f"{'less' if self.wins else 'more'} than {self.rival}"
        bits = _split([(f"{one.target:g}", one.won) for one in self.rounds])
        moments = _split([(one.moment, one.won) for one in self.rounds])
        if bits is not None:
            return f"less than {self.rival} at {bits[0]} bit and more at {bits[1]} bit"
        if moments is not None:
            return f"less than {self.rival} {moments[0]} and more {moments[1]} in training"
        return f"less than {self.rival} in {self.wins} of {len(self.rounds)} comparisons"

    def __str__(self) -> str:
        ratios = [one.ratio for one in self.rounds]
        return f"{self.outcome} ({min(ratios):.2f} to {max(ratios):.2f} times its error)"


def _split(rounds: Sequence[tuple[str, bool]]) -> tuple[str, str] | None:
    """The labels of won and of lost rounds, if no label has both."""
    won = list(dict.fromkeys(label for label, win in rounds if win))
    lost = list(dict.fromkeys(label for label, win in rounds if not win))
    return None if set(won) & set(lost) else (" and ".join(won), " and ".join(lost))


def duels(findings: Sequence[Finding]) -> list[Duel]:
    """The better of FFT's two chunk lengths against every rival, at equal bits only."""
    found = []
    for rival in RIVALS:
        rounds = [one for finding in findings for one in _rounds(finding.errors, rival)]
        if rounds:
            found.append(Duel(rival, tuple(rounds)))
    return found


def _rounds(errors: Iterable[Error], rival: str) -> list[Round]:
    met = [error for error in errors if error.meets]
    rounds = []
    for other in met:
        ours = [e.error for e in met if e.target == other.target and e.method in FFT]
        if other.method == rival and ours and other.error > 0:
            rounds.append(Round(other.moment, other.target, min(ours) / other.error))
    return rounds


def verdict(findings: Sequence[Finding]) -> str:
    """One subject's findings in a few sentences: whether the claim holds, and why."""
    fought = duels(findings)
    if not fought:
        return "FFT or its rivals were left out: nothing to compare."
    lag1 = [finding.correlation.lag1 for finding in findings]
    frequency = [max(f.correlation.in_frequency, f.correlation.in_chunks) for f in findings]
    place = [finding.correlation.in_place for finding in findings]
    held = "holds" if all(duel.wins == len(duel.rounds) for duel in fought) else "does not hold"
    return (
        f"The claim {held} here: FFT errs {'; '.join(map(str, fought))}. Neighbours correlate by "
        f"{_range(lag1)}; 15 % of the bins hold {_range(frequency)} of the energy, 15 % of the elements "
        f"{_range(place)} (white noise: .43 and .56).{_warning(findings)}"
    )


def _warning(findings: Sequence[Finding]) -> str:
    """Gradients of a run that does not learn say little about training."""
    first, last = findings[0].loss, findings[-1].loss
    if len(findings) < 2 or last < FALLEN * first:
        return ""
    return f" WARNING: the loss went from {first:.2f} to {last:.2f} only, this run hardly learns."


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
