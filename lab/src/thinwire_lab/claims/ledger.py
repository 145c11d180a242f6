"""The ledger: all claims, in the order of their papers."""

from __future__ import annotations

from thinwire.errors import LabError
from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.papers import (
    baselines,
    cifar_accuracy,
    fft_errors,
    fft_theta,
    figure5,
    gradiveq_correlation,
    gradiveq_training,
    private_records,
    speed,
    terngrad_gradients,
    terngrad_nets,
    terngrad_workers,
)

CLAIMS: tuple[Claim, ...] = (
    *terngrad_workers.CLAIMS,
    *terngrad_nets.CLAIMS,
    *cifar_accuracy.TERNGRAD,
    *terngrad_gradients.CLAIMS,
    *figure5.CLAIMS,
    *speed.TERNGRAD,
    *gradiveq_correlation.CLAIMS,
    *cifar_accuracy.GRADIVEQ,
    *gradiveq_training.CLAIMS,
    *speed.GRADIVEQ,
    *fft_errors.CLAIMS,
    *fft_theta.CLAIMS,
    *cifar_accuracy.FFT,
    *speed.FFT_CLAIMS,
    *baselines.CLAIMS,
    *private_records.CLAIMS,
)


def find_claim(id: str) -> Claim:
    """The claim of that id."""
    found = {claim.id: claim for claim in CLAIMS}
    if id not in found:
        raise LabError(f"there is no claim {id!r}: known are {', '.join(found)}")
    return found[id]
