"""What an injected fault led to: hangs, survivors that name the right rank, lost residuals; and the table."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faulty import Ended, Fault
from launch import Gone, Hang

PAGE = Path(__file__).parents[2] / "docs/reference/reliability.md"
MARKS = "<!-- faults: begin, made by tests/distributed/faults.py -->\n", "<!-- faults: end -->\n"

# How an error of ours, or of DDP's constructor, blames ranks.
BLAMES = (
    r"rank ([\d, ]+) closed the connection or died",
    r"no sign of life from rank ([\d, ]+)(?:;| since)",
    r"rank (\d+) failed in operation",
    r"rank (\d+) could not start",
    r"rank (\d+) takes part no more",
    r"rank ([\d, ]+) did not call compress",
    r"look at the log of rank (\d+)",
    r"(rank \d+ and rank [\d, ]+) differ",
)


@dataclass
class Verdict:
    """One line of the record."""

    kind: str
    seed: int
    what: str
    outcome: str  # "bad: ..." is what must not be
    survivors: int = 0
    named: int = 0
    hangs: int = 0
    lost: int = 0
    seconds: float = 0.0
    said: str = ""


def blamed(text: str) -> set[int]:
    return {int(n) for rule in BLAMES for found in re.findall(rule, text) for n in re.findall(r"\d+", found)}


def _what(fault: Fault) -> str:
    deed = f"{fault.place} {fault.deed} {fault.ddp or ''}".strip()
    return f"world {fault.world}, rank {fault.victim}, {fault.codec}, {fault.net}, {deed}".strip(", ")


def _verdict(fault: Fault, struck: float, answers: list[Any], outcome: str) -> Verdict:
    ended = [answer for answer in answers if isinstance(answer, Ended)]
    return Verdict(
        fault.kind,
        fault.seed,
        _what(fault),
        outcome,
        survivors=len(answers),
        hangs=sum(isinstance(answer, Hang) for answer in answers),
        lost=sum(not answer.kept for answer in ended),
        seconds=round(max((answer.at - struck for answer in ended if answer.at > struck), default=0.0), 2),
    )


def judge_fatal(fault: Fault, struck: float, answers: list[Any]) -> Verdict:
    """Every survivor must name the victim and nobody else; or the fault came after its last exchange."""
    texts = [a.failure.text if isinstance(a, Ended) and a.failure else repr(a) for a in answers]
    shared = fault.kind in ("codec", "model", "dtype", "buckets")  # all raise, and two sides differ
    at_fault = {fault.victim}
    if shared:  # a rank that DDP's constructor stopped (it raises, or gloo aborts) never came to compress
        absent = {rank for rank, a in enumerate(answers) if _stopped_by_ddp(a)}
        answers = [a for rank, a in enumerate(answers) if rank not in absent]
        at_fault = absent or at_fault
        if not answers:
            return Verdict(
                fault.kind, fault.seed, _what(fault), "DDP's constructor raised", said=texts[0][:300]
            )
        texts = [a.failure.text if isinstance(a, Ended) and a.failure else repr(a) for a in answers]
    right = [blamed(t) >= at_fault if shared else blamed(t) == at_fault for t in texts]
    whole = [isinstance(a, Ended) and a.failure is None for a in answers]
    wrong = [text for text, ok, fine in zip(texts, right, whole, strict=True) if not ok and not fine]
    outcome = "all had finished" if all(whole) else "named"
    if all(whole) and fault.kind == "buckets":  # DDP took those of rank 0 when it rebuilt its buckets
        outcome = "same bits" if len({a.bits for a in answers}) == 1 else "bad: other bits"
    if wrong:
        outcome = "bad: not named"
    if any(isinstance(a, Gone) for a in answers):
        outcome = "bad: a survivor died"
    verdict = _verdict(fault, struck, answers, outcome)
    verdict.survivors -= sum(whole)
    verdict.named = sum(right)
    verdict.said = (wrong or texts)[0][:300]
    return verdict


def _stopped_by_ddp(answer: Any) -> bool:
    return isinstance(answer, Gone) or (
        isinstance(answer, Ended) and bool(answer.failure) and answer.step < 0
    )


def judge_alike(fault: Fault, struck: float, reference: list[Any], answers: list[Any]) -> Verdict:
    """All ranks end, with the bits of a run without the fault."""
    bits = {a.bits if isinstance(a, Ended) and a.failure is None else repr(a)[:300] for a in answers}
    same = {a.bits for a in reference} if all(isinstance(a, Ended) for a in reference) else set()
    verdict = _verdict(fault, struck, answers, "same bits" if bits == same else "bad: not the same bits")
    verdict.survivors = 0
    verdict.lost += verdict.outcome != "same bits"
    verdict.said = "" if bits == same else " / ".join(sorted(bits))[:300]
    return verdict


def judge_skipped(fault: Fault, struck: float, answers: list[Any]) -> Verdict:
    """All ranks skip that step and keep their memories, go on, and end with the same bits."""
    fine = all(isinstance(a, Ended) and a.failure is None and a.kept and a.skipped for a in answers)
    fine = fine and len({a.bits[:32] for a in answers}) == 1
    verdict = _verdict(fault, struck, answers, "skipped everywhere" if fine else "bad: not skipped alike")
    verdict.survivors = 0
    verdict.said = "" if fine else repr(answers)[:300]
    return verdict


def table(record: Path, words: Mapping[str, str]) -> str:
    lines = [Verdict(**json.loads(line)) for line in record.read_text().splitlines()]
    kinds: dict[str, list[Verdict]] = defaultdict(list)
    for line in lines:
        kinds[line.kind].append(line)
    rows = [_row(text, kinds[kind]) for kind, text in words.items() if kinds[kind]]
    head = [
        "| fault | injections | hangs | survivors that name the right rank | lost residuals | seconds | |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, _row("**all**", lines)]) + "\n"


def _row(text: str, lines: list[Verdict]) -> str:
    survivors, seconds = sum(line.survivors for line in lines), [line.seconds for line in lines]
    named = f"{sum(line.named for line in lines)} of {survivors}" if survivors else "-"
    bad = [line for line in lines if line.outcome.startswith("bad")]
    good = {line.outcome for line in lines} - {line.outcome for line in bad} - {"named", "all had finished"}
    other = "; ".join([*sorted(good)] if len(lines) < 100 else [])
    if bad:
        other = f"{other}; {len(bad)} bad".strip("; ")
    spent = f"{statistics.median(seconds):.1f}, at most {max(seconds):.1f}"
    hangs, lost = sum(line.hangs for line in lines), sum(line.lost for line in lines)
    return f"| {text} | {len(lines)} | {hangs} | {named} | {lost} | {spent} | {other} |"


def write_table(text: str, marks: tuple[str, str] = MARKS) -> None:
    page = PAGE.read_text()
    head, rest = page.split(marks[0])
    PAGE.write_text(head + marks[0] + text + marks[1] + rest.split(marks[1])[1])
