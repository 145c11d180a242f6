"""Operator: one two-party protocol, which predicts its messages and runs; Party: one end of it.

Also the arithmetic of shares: numbers modulo 2^l in uint64 arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from thinwire_private.link.channel import Channel
from thinwire_private.message import SERVER, ProtocolMessage, WireTraffic, traffic
from thinwire_private.net.nodes import IntArray
from thinwire_private.ot.kind import OtBatch, OtKind
from thinwire_private.ot.primitives import Bytes, Prg, Words, pack, packed_bytes, unpack
from thinwire_private.ot.suite import Suite

Messages = tuple[ProtocolMessage, ...]


def mask(width: int) -> np.uint64:
    """2^width - 1."""
    return np.uint64((1 << width) - 1)


def reduce(values: Words, width: int) -> Words:
    """values mod 2^width."""
    return values & mask(width)


def negate_if(values: Words, bits: Bytes, width: int) -> Words:
    """values * (1 - 2 * bit) mod 2^width."""
    sign = np.uint64(0) - bits.astype(np.uint64)  # 0 or all ones
    return reduce((values ^ sign) - sign, width)


def keep_if(values: Words, bits: Bytes) -> Words:
    """values * bit."""
    return values & (np.uint64(0) - bits.astype(np.uint64))


def top_bit(values: Words, width: int) -> Bytes:
    """Bit width - 1 of every value."""
    return ((values >> np.uint64(width - 1)) & np.uint64(1)).astype(np.uint8)


def encode(values: IntArray, width: int) -> Words:
    """Integers as ring elements (two's complement)."""
    return reduce(values.astype(np.int64).reshape(-1).view(np.uint64), width)


def decode(values: Words, width: int, signed: bool) -> IntArray:
    """Ring elements as integers."""
    numbers = reduce(values, width).view(np.int64)
    return numbers - (numbers >> (width - 1) << width) if signed and width < 64 else numbers


class Operator(ABC):
    """A protocol for a known number of elements of known widths; `run` sends exactly `messages()`.

    Shares are flat uint64 arrays, x = x0 + x1 mod 2^l; shared bits are flat uint8 arrays, b = b0 xor b1.
    Party 0 is the server, party 1 the client.
    """

    @abstractmethod
    def messages(self) -> Messages:
        """Every message, in the order in which the client sees them."""

    def predict(self) -> WireTraffic:
        """Bytes on the wire of each direction, frames, flights."""
        return traffic(self.messages())

    def predict_bytes(self) -> int:
        """Bytes on the wire, both directions, frame headers included."""
        return self.predict().total_bytes


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

    def choose(self, bits: Bytes) -> OtBatch:
        """Start 1-of-2 OTs as receiver: sends the rows for these choice bits."""
        message, batch = self.suite.receiver.extend(bits)
        self.channel.send(message)
        return batch

    def offer(self, count: int) -> OtBatch:
        """Start 1-of-2 OTs as sender: receives the rows."""
        return self.suite.sender.extend(self.channel.receive(self.suite.kind.row_bytes(count)), count)

    def sender_pads(self, batch: OtBatch) -> tuple[Words, Words]:
        """64-bit pads of both messages."""
        sender = self.suite.sender
        pads = np.empty((2, batch.rows.size // 16), np.uint64)
        sender.hash.pads(batch.rows, None, batch.first_index, pads[0])
        sender.hash.pads(batch.rows, sender.delta, batch.first_index, pads[1])
        return pads[0], pads[1]

    def receiver_pads(self, batch: OtBatch) -> Words:
        """64-bit pads of the chosen messages."""
        pads = np.empty(batch.rows.size // 16, np.uint64)
        self.suite.receiver.hash.pads(batch.rows, None, batch.first_index, pads)
        return pads
