"""Tables of a study as cells of text: the same for the terminal, the HTML report and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire_lab.study.errors import Error, Finding
from thinwire_lab.study.formats import FormatError

Table = tuple[list[str], list[list[str]]]  # heads and rows


def error_table(findings: Sequence[Finding]) -> Table:
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


def missed_note(findings: Sequence[Finding]) -> str:
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


def _cell(error: Error) -> str:
    return number(error.error) + ("" if error.meets else "*")


def number(value: float) -> str:
    """Three digits, and no zero in front of the point.

    >>> number(0.1234), number(1.234), number(-0.05)
    ('.123', '1.23', '-.050')
    """
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3f}".replace("0.", ".", 1)


def correlation_table(findings: Sequence[Finding]) -> Table:
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
