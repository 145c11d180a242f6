"""Suite: all OT machinery of one party, both directions, made once per connection and used by every query."""

from __future__ import annotations

import numpy as np

from thinwire_private.link.channel import Channel
from thinwire_private.message import CLIENT, SERVER, ProtocolMessage, crossing
from thinwire_private.ot.consistency import check_bytes, prove, verify
from thinwire_private.ot.kind import KK13_ROW_BITS, OtKind
from thinwire_private.ot.kk13 import WideReceiver, WideSender, seeds
from thinwire_private.ot.primitives import Prg, derive
from thinwire_private.ot.softspoken import BASE_REPLY_BYTES, BASE_REQUEST_BYTES, Receiver, Sender

NONCE_BYTES = 16


class Suite:
    """Set-up, both directions at once; every pair of messages crosses:

    1. nonces: the session id is a hash of both, so no two sessions share a key;
    2. base OT requests, then replies with the sealed sums (softspoken.py);
    3. both prove that their trees are consistent (consistency.py);
    4. with KK13: 256 OTs in each direction seed the other direction's rows.
    """

    def __init__(self, kind: OtKind, role: int, channel: Channel, prg: Prg, context: bytes = b"") -> None:
        """role: SERVER or CLIENT; context: what both already agreed on (model, parameters)."""
        self.kind = kind
        own = prg.take(NONCE_BYTES).tobytes()
        other = bytes(channel.exchange(own))
        nonces = (own, other) if role == SERVER else (other, own)
        self.session = derive(context, "session", *nonces)
        # A direction is named by who sends in it.
        self.sender = Sender(kind, derive(self.session, "direction", bytes([role])), prg)
        self.receiver = Receiver(kind, derive(self.session, "direction", bytes([1 - role])), prg)
        request = channel.exchange(self.sender.request)
        self.sender.finish(channel.exchange(self.receiver.reply(request)))
        proof = channel.exchange(prove(self.receiver, self.session, prg))
        verify(self.sender, self.session, kind, proof)
        self.wide_sender: WideSender | None = None
        self.wide_receiver: WideReceiver | None = None
        if kind.kk13:
            self._add_kk13(role, channel, prg)

    def _add_kk13(self, role: int, channel: Channel, prg: Prg) -> None:
        secret = prg.bits(KK13_ROW_BITS)
        message, chosen = self.receiver.extend(secret)
        theirs = self.sender.extend(channel.exchange(message), KK13_ROW_BITS)
        pairs = np.stack(
            [seeds(theirs, None, self.sender.hash), seeds(theirs, self.sender.delta, self.sender.hash)], 1
        )
        wide = [derive(self.session, "wide", bytes([sender])) for sender in (SERVER, CLIENT)]
        self.wide_sender = WideSender(wide[role], secret, seeds(chosen, None, self.receiver.hash))
        self.wide_receiver = WideReceiver(self.kind, wide[1 - role], pairs)


def setup_messages(kind: OtKind) -> tuple[ProtocolMessage, ...]:
    """What the set-up sends."""
    sizes = [NONCE_BYTES, BASE_REQUEST_BYTES, BASE_REPLY_BYTES, check_bytes(kind)]
    if kind.kk13:
        sizes.append(kind.row_bytes(KK13_ROW_BITS))
    return crossing(*((size, size) for size in sizes))
