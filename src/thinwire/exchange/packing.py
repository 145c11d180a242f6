"""States as users get them: one entry of bytes, which DCP keeps apart from those of other ranks."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from thinwire.errors import StateError

ALL = "state of all ranks"
_HEAD = struct.Struct("<q")  # bytes of the JSON
_TENSOR = "tensor"


def own_key(rank: int) -> str:
    """Torch names it where a checkpoint has no such rank: hence the way out in it."""
    return f"state of rank {rank} alone (state_dict(gather=True) has all)"


def sealed(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """A state as users get it: one entry, which DCP keeps apart from those of other ranks."""
    return {ALL if state.get("gathered") else own_key(rank): pack_state(state)}


def opened(state: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    """The state in what `sealed` made: of all ranks, or of this one; anything else as it is.

    >>> opened(sealed({"step": 3, "rank": 1}, rank=1), rank=1)
    {'step': 3, 'rank': 1}
    """
    if not isinstance(state, Mapping):
        return state
    packed = [state[key] for key in (ALL, own_key(rank), *state) if key in state]
    if not packed or not isinstance(packed[0], bytes | bytearray):
        return state
    try:
        return unpack_state(bytes(packed[0]))
    except (ValueError, struct.error, TypeError, KeyError, RuntimeError) as error:
        raise StateError(
            f"the state of a compressor is damaged ({error}): load another checkpoint"
        ) from error


def pack_state(state: dict[str, Any]) -> bytes:
    """Dictionaries with text keys, lists, numbers, texts, None, and tensors.

    >>> unpack_state(pack_state({"a": [1, {"b": torch.tensor([2.5])}]}))
    {'a': [1, {'b': tensor([2.5000])}]}
    """
    tensors: list[bytes] = []
    plain = json.dumps(_plain(state, tensors)).encode()
    return b"".join([_HEAD.pack(len(plain)), plain, *tensors])


def unpack_state(data: bytes) -> dict[str, Any]:
    """What `pack_state` was given; tensors are on the CPU."""
    (length,) = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    read: dict[str, Any] = _restored(json.loads(data[_HEAD.size : start]), data[start:])
    return read


def _plain(value: Any, tensors: list[bytes]) -> Any:
    if isinstance(value, Tensor):
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        offset = sum(map(len, tensors))
        tensors.append(raw)
        return [_TENSOR, str(value.dtype).removeprefix("torch."), list(value.shape), offset, len(raw)]
    if isinstance(value, dict):
        return {key: _plain(inner, tensors) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return ["list", *(_plain(inner, tensors) for inner in value)]
    return value


def _restored(value: Any, raw: bytes) -> Any:
    if isinstance(value, dict):
        return {key: _restored(inner, raw) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    if value[0] != _TENSOR:
        return [_restored(inner, raw) for inner in value[1:]]
    _, dtype, shape, offset, length = value
    flat = torch.frombuffer(bytearray(raw[offset : offset + length]), dtype=torch.uint8) if length else None
    made = torch.empty(0, dtype=getattr(torch, dtype)) if flat is None else flat.view(getattr(torch, dtype))
    return made.reshape(shape)
