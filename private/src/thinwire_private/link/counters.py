"""Counters: what a party has sent and received through a channel; subtract two readings for what passed."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Counters:
    """Bytes are those on the wire above TLS: payload and frame headers.

    A flight is a change of direction as this party sees it: messages sent in a row are one flight, so are
    messages received in a row.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_payload_bytes: int = 0
    received_payload_bytes: int = 0
    sent_frames: int = 0
    received_frames: int = 0
    flights: int = 0

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))

    @property
    def total_bytes(self) -> int:
        """Both directions."""
        return self.sent_bytes + self.received_bytes
