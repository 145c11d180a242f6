"""Optimizers that exchange by themselves, by few bits."""

from thinwire.optim.one_bit_adam import OneBitAdam as OneBitAdam
from thinwire.optim.zero_one_adam import ZeroOneAdam as ZeroOneAdam

__all__ = ["OneBitAdam", "ZeroOneAdam"]
