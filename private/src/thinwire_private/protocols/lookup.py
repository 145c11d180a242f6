"""Lookup: 1-of-2^k OT of short messages: the receiver reads one entry of each of the sender's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thinwire_private.message import ProtocolMessage, rows
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, pack_small, packed_bytes, unpack_small
from thinwire_private.protocols.operator import Messages, Operator, Party


@dataclass(frozen=True)
class Column:
    """`count` tables of 2^log entries, each of `bits` bits (1, 2, 4 or 8)."""

    count: int
    log: int
    bits: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of the sealed tables."""
        return packed_bytes(self.count << self.log, self.bits)


@dataclass(frozen=True)
class Lookup(Operator):
    """Several columns of tables in one go.

    1. The receiver sends the rows of its choices: KK13's (256 bits per table), or those of `log` 1-of-2 OTs.
    2. The sender seals entry j of each table with pad j and sends all entries.
    3. The receiver opens the entry it chose.

    Cost per table: 256 + 2^k m bits with KK13, else k c2 + 2^k m.
    """

    columns: tuple[Column, ...]
    sender: int
    kind: OtKind

    def messages(self) -> Messages:
        payload = sum(column.payload_bytes for column in self.columns)
        return self._rows, ProtocolMessage(self.sender, payload)

    @property
    def _rows(self) -> ProtocolMessage:
        if self.kind.kk13:
            wide = self.kind.wide_bytes(sum(column.count for column in self.columns))
            return ProtocolMessage(1 - self.sender, wide)
        return rows(1 - self.sender, sum(column.count * column.log for column in self.columns), self.kind)

    def send(self, party: Party, tables: Sequence[Bytes]) -> None:
        """The sender's part: one array (count, 2^log) per column."""
        message, sealed, start = party.channel.receive(self._rows.num_bytes), [], 0
        if self.kind.kk13:
            wide = party.suite.wide_sender
            assert wide is not None
            batch = wide.extend(message, sum(column.count for column in self.columns))
            for column, table in zip(self.columns, tables, strict=True):
                pads = wide.tables(batch.part(start, start + column.count, 32), column.log)
                sealed.append(bytes(pack_small((pads ^ table) & _mask(column), column.bits)))
                start += column.count
        else:
            sender = party.suite.sender
            batch = sender.extend(message, sum(column.count * column.log for column in self.columns))
            for column, table in zip(self.columns, tables, strict=True):
                part = batch.part(start, start + column.count * column.log)
                pads = np.empty(column.count << column.log, np.uint8)
                sender.hash.tables(part.rows, sender.delta, column.log, part.first_index, pads)
                sealed.append(bytes(pack_small((pads ^ table.reshape(-1)) & _mask(column), column.bits)))
                start += column.count * column.log
        party.channel.send(b"".join(sealed))

    def receive(self, party: Party, choices: Sequence[Bytes]) -> list[Bytes]:
        """The receiver's part: the chosen entry of every table, one array per column."""
        return self.open(party, choices, self.ask(party, choices))

    def ask(self, party: Party, choices: Sequence[Bytes]) -> list[Bytes]:
        """Step 1: the pads of the chosen entries."""
        pads: list[Bytes] = []
        start = 0
        if self.kind.kk13:
            wide = party.suite.wide_receiver
            assert wide is not None
            message, batch = wide.extend(np.concatenate(choices))
            party.channel.send(message)
            for column in self.columns:
                pads.append(wide.entries(batch.part(start, start + column.count, 32)))
                start += column.count
        else:
            bits = [
                ((choice[:, None] >> np.arange(column.log, dtype=np.uint8)) & 1).reshape(-1)
                for column, choice in zip(self.columns, choices, strict=True)
            ]
            batch = party.choose(np.concatenate(bits))
            for column, choice in zip(self.columns, choices, strict=True):
                part = batch.part(start, start + column.count * column.log)
                pad = np.empty(column.count, np.uint8)
                party.suite.receiver.hash.entries(part.rows, choice, column.log, part.first_index, pad)
                pads.append(pad)
                start += column.count * column.log
        return pads

    def open(self, party: Party, choices: Sequence[Bytes], pads: Sequence[Bytes]) -> list[Bytes]:
        """Step 3."""
        wire, opened, place = party.channel.receive(self.messages()[1].num_bytes), [], 0
        for column, choice, pad in zip(self.columns, choices, pads, strict=True):
            part_wire = wire[place : place + column.payload_bytes]
            entries = unpack_small(part_wire, column.count << column.log, column.bits)
            chosen = entries.reshape(column.count, -1)[np.arange(column.count), choice]
            opened.append((chosen ^ pad) & _mask(column))
            place += column.payload_bytes
        return opened


def _mask(column: Column) -> np.uint8:
    return np.uint8((1 << column.bits) - 1)
