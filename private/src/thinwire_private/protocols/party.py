"""Party: one end of a two-party computation: its role, its channel, its OTs, its randomness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.link.channel import Channel
from thinwire_private.message import SERVER
from thinwire_private.ot.batch import Batch
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.packing import pack, packed_bytes, unpack
from thinwire_private.ot.prg import Bytes, Prg, Words
from thinwire_private.ot.suite import Suite


@dataclass(frozen=True)
class Party:
    """What a protocol needs of its party."""

    role: int
    channel: Channel
    suite: Suite
    prg: Prg

    @staticmethod
    def start(
        role: int, channel: Channel, kind: OtKind, seed: bytes | None = None, context: bytes = b""
    ) -> Party:
        """Run the set-up over a channel; a seed is for tests only."""
        prg = Prg(seed)
        return Party(role, channel, Suite(kind, role, channel, prg, context), prg)

    @property
    def is_server(self) -> bool:
        """Whether this is party 0."""
        return self.role == SERVER

    def only(self, role: int, values: Words) -> Words:
        """`values` as a sharing: all of it with one party, zero with the other."""
        return values if self.role == role else np.zeros_like(values)

    def send_ring(self, values: Words, width: int) -> None:
        """Send ring elements in exactly `width` bits each."""
        self.channel.send(pack(values, width))

    def receive_ring(self, count: int, width: int) -> Words:
        """The peer's ring elements."""
        return unpack(self.channel.receive(packed_bytes(count, width)), count, width)

    def prepare_ots(self, as_receiver: int, as_sender: int) -> None:
        """Do ahead what needs no choices, for this many blocks of 128 OTs; transcripts stay the same."""
        self.suite.receiver.prepare(as_receiver)
        self.suite.sender.prepare(as_sender)

    def choose(self, bits: Bytes) -> Batch:
        """Start 1-of-2 OTs as receiver: sends the rows for these choice bits."""
        message, batch = self.suite.receiver.extend(bits)
        self.channel.send(message)
        return batch

    def offer(self, count: int) -> Batch:
        """Start 1-of-2 OTs as sender: receives the rows."""
        return self.suite.sender.extend(self.channel.receive(self.suite.kind.row_bytes(count)), count)

    def sender_pads(self, batch: Batch) -> tuple[Words, Words]:
        """64-bit pads of both messages."""
        sender = self.suite.sender
        pads = np.empty((2, batch.rows.size // 16), np.uint64)
        sender.hash.pads(batch.rows, None, batch.first_index, pads[0])
        sender.hash.pads(batch.rows, sender.delta, batch.first_index, pads[1])
        return pads[0], pads[1]

    def receiver_pads(self, batch: Batch) -> Words:
        """64-bit pads of the chosen messages."""
        pads = np.empty(batch.rows.size // 16, np.uint64)
        self.suite.receiver.hash.pads(batch.rows, None, batch.first_index, pads)
        return pads
