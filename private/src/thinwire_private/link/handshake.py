"""The handshake: both parties make sure that they run the same protocol, model and parameters.

    1. client -> server: Hello (version, nonce, digest of the description it expects, or zeros for any)
    2. server -> client: Hello (version, nonce, digest and size of its description)
    3. server -> client: the description: what is public of the model, and the protocol variant
    4. client <-> server: SHA-256 over versions, nonces, description and fingerprint: the digest of all
       message sizes, which each party has computed for itself

The session id, which goes into every key, is derived from both nonces and the description. A refusal is told
to the peer in one sentence. After the handshake the client sends requests of 8 bytes each.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass
from enum import IntEnum

from thinwire.errors import LinkError
from thinwire_private.link.channel import Channel

PROTOCOL_VERSION = 3  # 2: offline products and triples in one pipeline; 3: ring-LWE
MAX_DESCRIPTION_BYTES = 4 << 20
ANY = bytes(32)
_MAGIC = b"thinwire"
_HELLO = struct.Struct("<8sHHI32s32s")  # magic, version, role, description bytes, nonce, digest
HELLO_BYTES = _HELLO.size
_SERVER, _CLIENT = 0, 1
_ROLES = ("server", "client")
MAX_BATCH = 1024
_REQUEST = struct.Struct("<B3xI")
REQUEST_BYTES = _REQUEST.size


@dataclass(frozen=True)
class Hello:
    """The first message of either side; its first 12 bytes mean the same in every version."""

    role: int
    num_bytes: int
    nonce: bytes
    digest: bytes
    version: int = PROTOCOL_VERSION

    def to_bytes(self) -> bytes:
        return _HELLO.pack(_MAGIC, self.version, self.role, self.num_bytes, self.nonce, self.digest)

    @staticmethod
    def read(data: memoryview, role: int) -> Hello:
        magic, version, told_role, num_bytes, nonce, digest = _HELLO.unpack(data)
        if magic != _MAGIC:
            raise LinkError("the peer is not a thinwire private server or client: check the address")
        if version != PROTOCOL_VERSION:
            raise LinkError(
                f"protocol version {version} of the {_ROLES[role]} meets version {PROTOCOL_VERSION} of the "
                f"{_ROLES[1 - role]}: install the same thinwire on both sides"
            )
        if told_role != role:
            raise LinkError(f"both ends are a {_ROLES[1 - role]}: one must serve, the other infer")
        return Hello(told_role, num_bytes, nonce, digest, version)


@dataclass(frozen=True)
class Terms:
    """What both sides said before they confirm it."""

    client_nonce: bytes
    server_nonce: bytes
    description: bytes

    @property
    def session_id(self) -> bytes:
        """32 bytes that no other session has."""
        return self._hash(b"session id")

    def confirm(self, channel: Channel, fingerprint: bytes) -> bytes:
        """Step 4; gives the session id."""
        proof = self._hash(b"confirm" + fingerprint)
        if not hmac.compare_digest(channel.exchange(proof), proof):
            raise LinkError(
                "the two sides compute different message sizes for this model: "
                "they use other parameters or another build; install the same thinwire on both sides"
            )
        return self.session_id

    def _hash(self, purpose: bytes) -> bytes:
        parts = (b"thinwire private", struct.pack("<H", PROTOCOL_VERSION), self.client_nonce)
        whole = b"".join((*parts, self.server_nonce, describe_digest(self.description), purpose))
        return hashlib.sha256(whole).digest()


def describe_digest(description: bytes) -> bytes:
    """The digest by which a client can insist on a model."""
    return hashlib.sha256(b"thinwire private description" + description).digest()


def meet_client(channel: Channel, description: bytes) -> Terms:
    """Steps 1 to 3 for the server."""
    client = Hello.read(channel.receive(HELLO_BYTES), _CLIENT)
    digest = describe_digest(description)
    if client.digest not in (ANY, digest):
        raise LinkError(
            f"the client expects model {client.digest.hex()[:16]}, this server has {digest.hex()[:16]}: "
            "give both sides the same model and variant"
        )
    nonce = secrets.token_bytes(32)
    channel.send(Hello(_SERVER, len(description), nonce, digest).to_bytes())
    channel.send(description)
    return Terms(client.nonce, nonce, description)


def meet_server(channel: Channel, expected: bytes = ANY) -> Terms:
    """Steps 1 to 3 for the client."""
    nonce = secrets.token_bytes(32)
    channel.send(Hello(_CLIENT, 0, nonce, expected).to_bytes())
    server = Hello.read(channel.receive(HELLO_BYTES), _SERVER)
    if not 1 <= server.num_bytes <= MAX_DESCRIPTION_BYTES:
        raise LinkError(
            f"the server announces a description of {server.num_bytes} bytes, "
            f"allowed are 1 to {MAX_DESCRIPTION_BYTES}"
        )
    description = bytes(channel.receive(server.num_bytes))
    if describe_digest(description) != server.digest:
        raise LinkError("the server's description does not fit its digest: start again")
    if expected not in (ANY, server.digest):
        raise LinkError(
            f"model {expected.hex()[:16]} is expected, this server has {server.digest.hex()[:16]}: "
            "give both sides the same model and variant"
        )
    return Terms(nonce, server.nonce, description)


class RequestKind(IntEnum):
    """PREPARE runs the offline phase of one query ahead of it, QUERY runs a query, BYE ends the session."""

    PREPARE = 1
    QUERY = 2
    BYE = 3


@dataclass(frozen=True)
class Request:
    """An act, for a batch of pictures.

    >>> len(Request(RequestKind.QUERY, 16).to_bytes())
    8
    """

    act: RequestKind
    batch: int = 1

    def to_bytes(self) -> bytes:
        return _REQUEST.pack(self.act, self.batch)

    @staticmethod
    def receive(channel: Channel, max_batch: int = MAX_BATCH) -> Request:
        """The next request of the client; refuses what no client may ask."""
        act, batch = _REQUEST.unpack(channel.receive(REQUEST_BYTES))
        if max_batch < batch <= MAX_BATCH:
            raise LinkError(
                f"the client asks for {batch} pictures at once, this server takes up to {max_batch}: "
                "send them in smaller batches"
            )
        if act not in tuple(RequestKind) or not 1 <= batch <= MAX_BATCH:
            raise LinkError(
                f"the client asks for act {act} with {batch} pictures: known are acts 1 to 3 "
                f"with 1 to {MAX_BATCH} pictures"
            )
        return Request(RequestKind(act), batch)
