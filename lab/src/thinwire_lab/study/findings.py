"""Findings of a study in words: tables for terminal, page and Markdown, and the verdict on FFT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinwire_lab.study.errors import FormatError, GradientErrors, MethodError

Table = tuple[list[str], list[list[str]]]  # heads and rows
FFT = ("fft", "fft whole")
FALLEN = 0.9  # a run whose loss ends above this share of its first one has hardly learnt
RIVALS = ("qsgd", "qsgd l2", "terngrad", "topk", "topk fp32")  # those the paper names, in our variants


def error_table(findings: Sequence[GradientErrors]) -> Table:
    """One subject: methods down, moments and targets across; a missed target has a star."""
    errors = [error for finding in findings for error in finding.errors]
    moments = [finding.moment for finding in findings]
    targets = list(dict.fromkeys(error.target for error in errors))
    heads = ["method", *(f"{moment} {target:g}" for moment in moments for target in targets)]
    by_place = {(error.method, error.moment, error.target): error for error in errors}
    rows = [
        [method, *(_cell(by_place[method, moment, target]) for moment in moments for target in targets)]
        for method in dict.fromkeys(error.method for error in errors)
    ]
    return heads, rows


def missed_note(findings: Sequence[GradientErrors]) -> str:
    """What the stars of an error table mean: the bits that those methods send instead."""
    missed: dict[str, set[str]] = {}
    for finding in findings:
        for error in finding.errors:
            if not error.meets:
                missed.setdefault(error.method, set()).add(f"{error.bits:.2f}")
    if not missed:
        return ""
    own = "; ".join(f"{method} {' or '.join(sorted(bits))}" for method, bits in missed.items())
    return f"* cannot send that many bits per element, but: {own}."


def _cell(error: MethodError) -> str:
    return number(error.error) + ("" if error.meets else "*")


def number(value: float) -> str:
    """Three digits, and no zero in front of the point.

    >>> number(0.1234), number(1.234), number(-0.05)
    ('.123', '1.23', '-.050')
    """
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3f}".replace("0.", ".", 1)


def correlation_table(findings: Sequence[GradientErrors]) -> Table:
    """What explains the errors, a row for each snapshot."""
    heads = ["gradient", "loss", "lag 1", "in bins", "in chunks' bins", "in elements"]
    rows = []
    for f in findings:
        c = f.correlation
        shares = [number(value) for value in (c.lag1, c.in_frequency, c.in_chunks, c.in_place)]
        rows.append([f"{f.subject}, {f.moment}", f"{f.loss:.3g}", *shares])
    return heads, rows


def format_table(errors: Sequence[FormatError]) -> Table:
    """One subject: formats down, and for each moment error, underflow and saturation across."""
    moments = list(dict.fromkeys(error.moment for error in errors))
    heads = ["format", "bits"]
    heads += [f"{moment} {what}" for moment in moments for what in ("error", "underflow", "saturation")]
    by_place = {(error.format, error.bits, error.moment): error for error in errors}
    rows = []
    for name, bits in dict.fromkeys((error.format, error.bits) for error in errors):
        cells = [by_place[name, bits, moment] for moment in moments]
        texts = [t for c in cells for t in (f"{c.error:.2g}", _share(c.underflow), _share(c.saturation))]
        rows.append([name, str(bits), *texts])
    return heads, rows


def _share(share: float) -> str:
    if share == 0:
        return "0"
    return f"{share:.1%}" if share >= 0.001 else f"{share:.0e}"


def markdown(table: Table) -> str:
    """A table in Markdown."""
    heads, rows = table
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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


def duels(findings: Sequence[GradientErrors]) -> list[Duel]:
    """The better of FFT's two chunk lengths against every rival, at equal bits only."""
    found = []
    for rival in RIVALS:
        rounds = [one for finding in findings for one in _rounds(finding.errors, rival)]
        if rounds:
            found.append(Duel(rival, tuple(rounds)))
    return found


def _rounds(errors: Iterable[MethodError], rival: str) -> list[Round]:
    met = [error for error in errors if error.meets]
    rounds = []
    for other in met:
        ours = [e.error for e in met if e.target == other.target and e.method in FFT]
        if other.method == rival and ours and other.error > 0:
            rounds.append(Round(other.moment, other.target, min(ours) / other.error))
    return rounds


def verdict(findings: Sequence[GradientErrors]) -> str:
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


def _warning(findings: Sequence[GradientErrors]) -> str:
    """Gradients of a run that does not learn say little about training."""
    first, last = findings[0].loss, findings[-1].loss
    if len(findings) < 2 or last < FALLEN * first:
        return ""
    return f" WARNING: the loss went from {first:.2f} to {last:.2f} only, this run hardly learns."


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
