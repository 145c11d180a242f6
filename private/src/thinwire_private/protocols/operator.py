"""Operator: one two-party protocol as an object: it predicts its messages, and it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from thinwire_private.message import Message, Traffic, traffic

Messages = tuple[Message, ...]


class Operator(ABC):
    """A protocol for a known number of elements of known widths; `run` sends exactly `messages()`.

    Shares are flat uint64 arrays, x = x0 + x1 mod 2^l; shared bits are flat uint8 arrays, b = b0 xor b1.
    Party 0 is the server, party 1 the client.
    """

    @abstractmethod
    def messages(self) -> Messages:
        """Every message, in the order in which the client sees them."""

    def predict(self) -> Traffic:
        """Bytes on the wire of each direction, frames, flights."""
        return traffic(self.messages())

    def predict_bytes(self) -> int:
        """Bytes on the wire, both directions, frame headers included."""
        return self.predict().total_bytes
