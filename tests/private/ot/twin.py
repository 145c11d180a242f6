"""The twin: base OT and SoftSpoken extension once more, in plain Python and from the papers, to compare
bytes."""

from __future__ import annotations

import hashlib

import plain_aes
import plain_ristretto as curve


def xor(*parts: bytes) -> bytes:
    total = 0
    for part in parts:
        total ^= int.from_bytes(part, "little")
    return total.to_bytes(len(parts[0]), "little")


def derive(session: bytes, label: str, *parts: bytes) -> bytes:
    data = b"thinwire private 1"
    for part in (session, label.encode(), *parts):
        data += len(part).to_bytes(8, "little") + part
    return hashlib.sha512(data).digest()


class Stream:
    """Random bytes, as Prg."""

    def __init__(self, seed: bytes) -> None:
        self.seed, self.place = seed, 0

    def take(self, num_bytes: int) -> bytes:
        self.place += num_bytes
        return plain_aes.stream(self.seed, num_bytes, self.place - num_bytes)

    def scalar(self) -> int:
        return int.from_bytes(self.take(64), "little") % curve.ORDER


def point_hash(session: bytes, index: int, choice: int, point: bytes) -> curve.Point:
    return curve.from_hash(derive(session, "base point", index.to_bytes(4, "little"), bytes([choice]), point))


def key_hash(session: bytes, index: int, choice: int, point: curve.Point) -> bytes:
    parts = index.to_bytes(4, "little"), bytes([choice]), curve.encode(point)
    return derive(session, "base key", *parts)[:16]


def children(session: bytes, node: bytes) -> tuple[bytes, bytes]:
    keys = derive(session, "tree")
    return xor(plain_aes.encrypt(keys[:16], node), node), xor(plain_aes.encrypt(keys[16:32], node), node)


def bits(data: bytes) -> list[int]:
    return [data[i // 8] >> (i % 8) & 1 for i in range(8 * len(data))]


class TwinSender:
    """The end with Delta."""

    def __init__(self, k: int, session: bytes, stream: Stream) -> None:
        self.k, self.session = k, session
        self.delta = stream.take(16)
        self.choices = [1 - bit for bit in bits(self.delta)]
        self.scalars = [stream.scalar() for _ in range(128)]
        self.request = b""
        for index, (choice, scalar) in enumerate(zip(self.choices, self.scalars, strict=True)):
            other = curve.encode(curve.from_hash(stream.take(64)))
            hidden = curve.negate(point_hash(session, index, choice, other))
            own = curve.encode(curve.add(curve.multiply(scalar, curve.GENERATOR), hidden))
            self.request += other + own if choice else own + other

    def finish(self, reply: bytes) -> None:
        point, sealed = curve.decode(reply[:32]), reply[32:]
        opened = []
        for index, (choice, scalar) in enumerate(zip(self.choices, self.scalars, strict=True)):
            key = key_hash(self.session, index, choice, curve.multiply(scalar, point))
            opened.append(xor(sealed[32 * index + 16 * choice :][:16], key))
        self.trees: list[dict[int, bytes]] = []
        for g in range(128 // self.k):
            turns = bits(self.delta)[g * self.k : (g + 1) * self.k]
            known: dict[int, bytes] = {}  # node number to node; the hidden one's number is its turns so far
            hidden = 0
            for level, turn in enumerate(turns):
                made = {
                    number + (side << level): child
                    for number, node in known.items()
                    for side, child in enumerate(children(self.session, node))
                }
                missing = hidden + ((1 - turn) << level)
                same = [node for number, node in made.items() if number >> level == 1 - turn]
                made[missing] = xor(opened[g * self.k + level], *same)
                known, hidden = made, hidden + (turn << level)
            self.trees.append(known)

    def extend(self, message: bytes, count: int) -> list[int]:
        """q_i as integers."""
        size, wide = -(-count // 8), -(-count // 128) * 16
        rows = []
        for g, tree in enumerate(self.trees):
            turns = bits(self.delta)[g * self.k : (g + 1) * self.k]
            hidden = sum(turn << place for place, turn in enumerate(turns))
            streams = {number: plain_aes.stream(leaf, wide)[:size] for number, leaf in tree.items()}
            for place, turn in enumerate(turns):
                row = bytes(size)
                for number, stream in streams.items():
                    if (number ^ hidden) >> place & 1:
                        row = xor(row, stream)
                rows.append(xor(row, message[g * size :][:size]) if turn else row)
        return transpose(rows, count)


class TwinReceiver:
    """The end with the choices."""

    def __init__(self, k: int, session: bytes, stream: Stream) -> None:
        self.k, self.session = k, session
        self.scalar = stream.scalar()
        roots = stream.take(128 // k * 16)
        self.trees, self.sums = [], []
        for g in range(128 // k):
            nodes = [roots[16 * g : 16 * g + 16]]
            for _ in range(k):
                pairs = [children(session, node) for node in nodes]
                sides = [[pair[side] for pair in pairs] for side in (0, 1)]
                self.sums += [xor(*side) for side in sides]
                nodes = sides[0] + sides[1]
            self.trees.append(nodes)

    def reply(self, request: bytes) -> bytes:
        sealed = b""
        for index in range(128):
            points = request[64 * index :][:32], request[64 * index + 32 :][:32]
            for j in (0, 1):
                hashed = point_hash(self.session, index, j, points[1 - j])
                shared = curve.multiply(self.scalar, curve.add(curve.decode(points[j]), hashed))
                sealed += xor(self.sums[2 * index + j], key_hash(self.session, index, j, shared))
        return curve.encode(curve.multiply(self.scalar, curve.GENERATOR)) + sealed

    def extend(self, choices: list[int]) -> tuple[bytes, list[int]]:
        """The message, and v_i as integers."""
        count = len(choices)
        size, wide = -(-count // 8), -(-count // 128) * 16
        packed = sum(bit << place for place, bit in enumerate(choices)).to_bytes(size, "little")
        message, rows = b"", []
        for leaves in self.trees:
            streams = [plain_aes.stream(leaf, wide)[:size] for leaf in leaves]
            message += xor(packed, *streams)
            for place in range(self.k):
                chosen = [stream for number, stream in enumerate(streams) if number >> place & 1]
                rows.append(xor(*chosen))
        return message, transpose(rows, count)


def transpose(rows: list[bytes], count: int) -> list[int]:
    numbers = [int.from_bytes(row, "little") for row in rows]
    return [sum((row >> i & 1) << place for place, row in enumerate(numbers)) for i in range(count)]


def tweaked_hash(key: bytes, row: int, index: int, block: int = 0) -> bytes:
    """H(x, i) = pi(pi(x) xor i) xor pi(x)."""
    inner = plain_aes.encrypt(key, row.to_bytes(16, "little"))
    tweak = index.to_bytes(8, "little") + block.to_bytes(8, "little")
    return xor(plain_aes.encrypt(key, xor(inner, tweak)), inner)
