"""The native core and its plain twin say the same, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from twin import Stream, TwinReceiver, TwinSender, derive, tweaked_hash

from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Prg, as_bytes, native
from thinwire_private.ot.softspoken import Receiver, Sender

SESSION = b"a session of two"
SEEDS = b"seed of sender  ", b"seed of receiver"
COUNT = 131


@pytest.mark.parametrize("k", [1, 4])
def test_base_ot_and_extension_send_the_same_bytes(k: int) -> None:
    kind = OtKind(k)
    sender, receiver = Sender(kind, SESSION, Prg(SEEDS[0])), Receiver(kind, SESSION, Prg(SEEDS[1]))
    twin_sender, twin_receiver = (
        TwinSender(k, SESSION, Stream(SEEDS[0])),
        TwinReceiver(k, SESSION, Stream(SEEDS[1])),
    )
    assert sender.request == twin_sender.request
    reply = receiver.reply(memoryview(sender.request))
    assert reply == twin_receiver.reply(twin_sender.request)
    sender.finish(memoryview(reply))
    twin_sender.finish(reply)
    choices = Prg(b"seed of choices ").bits(COUNT)
    message, v = receiver.extend(choices)
    twin_message, twin_v = twin_receiver.extend([int(bit) for bit in choices])
    assert bytes(message) == twin_message
    assert v.rows.tobytes() == b"".join(row.to_bytes(16, "little") for row in twin_v)
    q = sender.extend(message, COUNT)
    twin_q = twin_sender.extend(twin_message, COUNT)
    assert q.rows.tobytes() == b"".join(row.to_bytes(16, "little") for row in twin_q)
    delta = int.from_bytes(sender.delta.tobytes(), "little")
    assert twin_q == [row ^ (delta if bit else 0) for row, bit in zip(twin_v, choices, strict=True)]


def test_the_hash_and_the_batched_cot_agree_with_the_twin() -> None:
    key = derive(SESSION, "hash")[:32]
    core = native().Hash(as_bytes(key))
    rows, length, width, index, block = 6, 5, 11, 1 << 40, 7 << 32
    data, delta = Prg(SEEDS[0]).take(16 * rows), Prg(SEEDS[1]).take(16)
    pads = np.empty(rows, np.uint64)
    core.pads(data, None, index, pads)
    numbers = [int.from_bytes(data[16 * i : 16 * i + 16].tobytes(), "little") for i in range(rows)]
    assert [int(p) for p in pads] == [
        int.from_bytes(tweaked_hash(key[:16], row, index + i)[:8], "little") for i, row in enumerate(numbers)
    ]
    matrix = np.arange(length, dtype=np.uint32)
    out, wire = np.zeros(rows * length, np.uint32), np.empty(-(-rows * length * width // 8), np.uint8)
    core.cot_send(data, delta, index, block, matrix, length, width, 2, False, out, wire)
    d = int.from_bytes(delta.tobytes(), "little")
    stream = 0
    for i, row in enumerate(numbers):
        zero, one = (
            np.frombuffer(tweaked_hash(key[:16], x, index + i, block), np.uint16)[:length].astype(int)
            for x in (row, row ^ d)
        )
        assert np.array_equal(out.reshape(rows, length)[i].view(np.int32), -(zero << 2))
        for j, z in enumerate((zero + matrix - one) % 2**width):
            stream |= int(z) << (width * (i * length + j))
    assert wire.tobytes() == stream.to_bytes(wire.size, "little")
