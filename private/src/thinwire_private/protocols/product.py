"""BitProduct: a matrix product from batched COTs: one party's bits choose, the other's rows are D."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from thinwire_private.message import ProtocolMessage
from thinwire_private.ot.kind import OtBatch, OtKind
from thinwire_private.ot.primitives import Bytes, Words, as_bytes, packed_bytes
from thinwire_private.protocols.operator import Messages, Operator, Party, reduce

CHUNK_BYTES = 1 << 20  # a message is about this long, so that both parties work at the same time
QUERY_BLOCKS = 1 << 32  # pad blocks of one OT that one query may use


@dataclass
class Seeds:
    """The OTs of one product, kept by one party. Every use takes pads that no other use has taken."""

    batch: OtBatch
    bits: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))  # the receiver's, (bits, rows * depth)
    uses: int = 0

    def next_block(self) -> int:
        """The first pad block of a new use."""
        self.uses += 1
        return (self.uses - 1) * QUERY_BLOCKS


@dataclass(frozen=True)
class BitProduct(Operator):
    """Shares of A B mod 2^L: the receiver holds A (rows x depth), `bits` bits each, the sender B.

    1. Seeds: one OT per bit of A (c2 bits each).
    2. For bit i of entry (a, c), weight 2^i: a COT of the vector B_c, `length` elements of L - i bits, for
       2^i times a number is needed mod 2^(L-i) only. Signed A: the top bit has the weight -2^(bits-1).
    3. Each party adds up its shares over c and i.

    Seeds may serve many products with the same A: every use takes fresh pads (Seeds).
    With `sign_top` the sender gives a sign to each D of the top bit (see linear.py, ActivationBits).

    Cost: rows * depth * (bits * c2 + length * sum_{i < bits} (L - i)) bits.
    """

    rows: int
    depth: int
    length: int
    bits: int
    width: int
    signed: bool
    receiver: int
    kind: OtKind
    sign_top: bool = False

    @property
    def num_ots(self) -> int:
        """One per bit of A."""
        return self.rows * self.depth * self.bits

    def seed_messages(self) -> Messages:
        """What the seeds cost, once."""
        return (ProtocolMessage(self.receiver, self.kind.row_bytes(self.num_ots)),)

    def payload_messages(self) -> Messages:
        """What every use costs."""
        return tuple(ProtocolMessage(1 - self.receiver, size) for _, _, _, size in self._chunks())

    def messages(self) -> Messages:
        return self.seed_messages() + self.payload_messages()

    def choose(self, party: Party, a: Words) -> Seeds:
        """The receiver's seeds, for A (rows, depth)."""
        places = np.arange(self.bits, dtype=np.uint64)[:, None]
        bits = ((a.reshape(1, -1) >> places) & np.uint64(1)).astype(np.uint8)
        return Seeds(party.choose(bits.reshape(-1)), bits)

    def offer(self, party: Party) -> Seeds:
        """The sender's seeds."""
        return Seeds(party.offer(self.num_ots))

    def send(self, party: Party, seeds: Seeds, b: Words, signs: Bytes | None = None) -> Words:
        """The sender's share (rows, length). signs (rows, depth): 1 where the top bit's D is +B, 0 where
        -B."""
        sender, block = party.suite.sender, seeds.next_block()
        out = np.zeros((self.rows, self.length), self._word)
        matrix = np.ascontiguousarray(b.astype(self._word))
        for bit, start, stop, size in self._chunks():
            wire = np.empty(size, np.uint8)
            pieces = [(start, stop, matrix, wire)]
            if self._signs(bit):
                assert signs is not None
                flips = np.where(signs, 1, -1).astype(np.int64).astype(self._word)
                each = packed_bytes(self.depth * self.length, self.width - bit)
                pieces = [
                    (row, row + 1, matrix * flips[row][:, None], wire[(row - start) * each :][:each])
                    for row in range(start, stop)
                ]
            for first, last, rows, part in pieces:
                batch = self._part(seeds.batch, bit, first, last)
                sender.hash.cot_send(
                    batch.rows,
                    sender.delta,
                    batch.first_index,
                    block,
                    rows.reshape(-1),
                    self.length,
                    self.width - bit,
                    bit,
                    self._is_negative(bit),
                    out[first:last].reshape(-1),
                    part,
                )
            party.channel.send(wire.data)
        return reduce(out.astype(np.uint64), self.width)

    def receive(self, party: Party, seeds: Seeds) -> Words:
        """The receiver's share (rows, length)."""
        hash_, block = party.suite.receiver.hash, seeds.next_block()
        out = np.zeros((self.rows, self.length), self._word)
        for bit, start, stop, size in self._chunks():
            wire = as_bytes(party.channel.receive(size))
            pieces = [(start, stop, wire)]
            if self._signs(bit):
                each = packed_bytes(self.depth * self.length, self.width - bit)
                pieces = [(row, row + 1, wire[(row - start) * each :][:each]) for row in range(start, stop)]
            for first, last, part in pieces:
                batch = self._part(seeds.batch, bit, first, last)
                hash_.cot_receive(
                    batch.rows,
                    seeds.bits[bit, first * self.depth : last * self.depth],
                    batch.first_index,
                    block,
                    self.depth,
                    self.length,
                    self.width - bit,
                    bit,
                    self._is_negative(bit),
                    out[first:last].reshape(-1),
                    part,
                )
        return reduce(out.astype(np.uint64), self.width)

    @property
    def _word(self) -> type[np.uint32] | type[np.uint64]:
        return np.uint32 if self.width <= 32 else np.uint64

    def _signs(self, bit: int) -> bool:
        return self.sign_top and bit == self.bits - 1

    def _is_negative(self, bit: int) -> bool:
        return self.signed and bit == self.bits - 1

    def _part(self, batch: OtBatch, bit: int, first: int, last: int) -> OtBatch:
        start = (bit * self.rows + first) * self.depth
        return batch.part(start, start + (last - first) * self.depth)

    def _chunks(self) -> Iterator[tuple[int, int, int, int]]:
        """(bit, first row, last row, bytes) of every message."""
        for bit in range(self.bits):
            row_elements, width = self.depth * self.length, self.width - bit
            step = max(1, CHUNK_BYTES // packed_bytes(row_elements, width))
            for start in range(0, self.rows, step):
                stop = min(self.rows, start + step)
                if self._signs(bit):
                    yield bit, start, stop, (stop - start) * packed_bytes(row_elements, width)
                else:
                    yield bit, start, stop, packed_bytes((stop - start) * row_elements, width)


@dataclass(frozen=True)
class WrapProduct(Operator):
    """SiRNN's product of shared wrap bits with a matrix B (depth x length), by chosen OTs as in SCI.

    w = f xor c, f with the sender, c with the receiver, one per entry of (rows x depth). The sender draws its
    share and sends (share + (f xor c) B_c) for c = 0 and c = 1. Result: minus 2^shift times the product.

    Cost: rows * depth * (c2 + 2 * length * width) bits.
    """

    rows: int
    depth: int
    length: int
    width: int
    shift: int
    receiver: int
    kind: OtKind

    def messages(self) -> Messages:
        rows = self.kind.row_bytes(self.rows * self.depth)
        payload = tuple(ProtocolMessage(1 - self.receiver, size) for _, _, size in self._chunks())
        return (ProtocolMessage(self.receiver, rows), *payload)

    def send(self, party: Party, flags: Bytes, b: Words) -> Words:
        """The sender's share (rows, length); flags (rows, depth)."""
        sender, batch = party.suite.sender, party.offer(self.rows * self.depth)
        out = np.zeros((self.rows, self.length), np.uint64)
        matrix, flat = np.ascontiguousarray(b).reshape(-1), np.ascontiguousarray(flags).reshape(-1)
        for start, stop, size in self._chunks():
            first, last = start * self.depth, stop * self.depth
            part, wire = batch.part(first, last), np.empty(size, np.uint8)
            noise = party.prg.take(8 * (last - first) * self.length).view(np.uint64)
            sender.hash.ot_send(
                part.rows,
                sender.delta,
                flat[first:last],
                part.first_index,
                matrix,
                noise,
                self.length,
                self.width,
                self.shift,
                True,
                out[start:stop].reshape(-1),
                wire,
            )
            party.channel.send(wire.data)
        return out

    def receive(self, party: Party, choices: Bytes) -> Words:
        """The receiver's share (rows, length); choices (rows, depth)."""
        flat = np.ascontiguousarray(choices).reshape(-1)
        batch = party.choose(flat)
        out = np.zeros((self.rows, self.length), np.uint64)
        for start, stop, size in self._chunks():
            first, last = start * self.depth, stop * self.depth
            part = batch.part(first, last)
            party.suite.receiver.hash.ot_receive(
                part.rows,
                flat[first:last],
                part.first_index,
                self.depth,
                self.length,
                self.width,
                self.shift,
                True,
                out[start:stop].reshape(-1),
                as_bytes(party.channel.receive(size)),
            )
        return out

    def _chunks(self) -> Iterator[tuple[int, int, int]]:
        row_elements = self.depth * self.length
        step = max(1, CHUNK_BYTES // packed_bytes(row_elements, 2 * self.width))
        for start in range(0, self.rows, step):
            stop = min(self.rows, start + step)
            yield start, stop, 2 * packed_bytes((stop - start) * row_elements, self.width)
