"""A judgement: what was measured, in a sentence, and what that means for the claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from thinwire_lab.claims.evidence import Evidence


class Word(StrEnum):
    """The first word of every verdict."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    REFUTED = "refuted"
    UNTESTABLE = "untestable"
    OPEN = "open"


@dataclass(frozen=True)
class Judgement:
    """What a judge makes of the evidence; `because` goes on where the word leaves something unsaid."""

    measured: str
    word: Word
    because: str = ""

    @property
    def verdict(self) -> str:
        """
        >>> Judgement("1.2x", Word.PARTLY, "faster, but not 2x").verdict
        'partly: faster, but not 2x'
        """
        return f"{self.word}: {self.because}" if self.because else str(self.word)


Judge = Callable[[Evidence], Judgement]


def graded(all_hold: bool, some_hold: bool) -> Word:
    """Reproduced if everything a claim says holds, partly if some of it does."""
    return Word.REPRODUCED if all_hold else Word.PARTLY if some_hold else Word.REFUTED
