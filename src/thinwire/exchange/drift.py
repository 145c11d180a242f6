"""Drift: whether all ranks still hold the same parameters, and what is done if they do not."""

from __future__ import annotations

import hashlib
import warnings
import weakref
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from thinwire.devices import Late, is_host
from thinwire.errors import DriftError, PlanError
from thinwire.groups.base import Group

CHECK_EVERY = 100  # steps: reading every parameter once then costs less than 0.1 % of a step
ACTIONS = ("raise", "warn", "repair")
_ROW = 4096  # words that are added before they are weighted by their context
_ODD = 0x1E3779B97F4A7C15  # weights of rows are its odd multiples
_REPAIR_BYTES = 1 << 22
_FROZEN = 0  # stands for the digest of a tensor that nobody trains, and whose ranks may differ


class DriftCheck:
    """Compares the parameters of all ranks now and then.

    1. every rank adds up the bits (`digest`) of its parameters, without those that are frozen by then, and
       all gather 16 bytes: the digest, and whether the rank only shadows the others (it has run out of
       inputs, `Join`: its parameters are old, nobody's fault)
    2. equal: nothing happens. Else the digests of all tensors are gathered, which name the tensor
    3. on_drift="raise": DriftError on all ranks; "warn": a warning; "repair": a warning, and everybody takes
       the parameters of rank 0. What optimizers hold may have drifted as well, and is not repaired

    It runs at the end of a step's last exchange: `backward` has not returned, so nobody changes parameters.
    On a device the host does not wait for the digests: it acts on them after the next step.
    """

    def __init__(
        self,
        group: Group,
        named: Iterable[tuple[str, Tensor]],
        every: int = CHECK_EVERY,
        on_drift: str = "raise",
        frozen_too: bool = False,
    ) -> None:
        if every < 0:
            raise PlanError(f"check_every={every} must be a number of steps, 0 for never")
        if on_drift not in ACTIONS:
            raise PlanError(f'on_drift="{on_drift}" is unknown: known are {", ".join(ACTIONS)}')
        self.group, self.every, self.on_drift = group, every, on_drift
        known = list(named)
        self._named = [(name, weakref.ref(tensor)) for name, tensor in known]  # the model's, not ours
        self._sent: tuple[int, Sequence[tuple[str, Tensor]], Late] | None = None
        self._frozen_too = frozen_too  # whether tensors that nobody trains must be equal as well
        self._frozen = {name for name, tensor in known if not tensor.requires_grad}  # DDP does not send these

    def check(self, step: int, shadowing: bool = False) -> None:
        """Collective, after step number `step`; does nothing in most of them."""
        if self._sent is not None:
            self._hear(*self._sent)
        if self.group.size == 1 or self.every == 0 or step % self.every:
            return
        tensors = [(name, tensor) for name, ref in self._named if (tensor := ref()) is not None]
        if tensors and not is_host(tensors[0][1].device):
            self._send(step, tensors, shadowing)
            return
        compared = (tensor.requires_grad or self._frozen_too for _, tensor in tensors)
        own = [digest(tensor) if yes else _FROZEN for (_, tensor), yes in zip(tensors, compared, strict=True)]
        whole = int.from_bytes(
            hashlib.blake2b(repr(own).encode(), digest_size=8).digest(), "little", signed=True
        )
        found = self._gathered([whole, int(shadowing)], tensors)
        if bool(found[:, 1].any()) or bool((found[:, 0] == found[0, 0]).all()):
            return
        self._act(step, tensors, self._gathered(own, tensors))

    def _send(self, step: int, tensors: Sequence[tuple[str, Tensor]], shadowing: bool) -> None:
        """Digests that stay on the device: of every tensor, and whether this rank only shadows the others."""
        words = [
            word_digest(t) if t.requires_grad or self._frozen_too else t.new_zeros((), dtype=torch.int64)
            for _, t in tensors
        ]
        mine = torch.stack([*words, torch.full_like(words[0], int(shadowing))])
        everyone = mine.new_empty(self.group.size, mine.numel())
        self.group.all_gather(mine.view(torch.uint8), everyone.view(torch.uint8)).wait()
        self._sent = step, tensors, Late(everyone)

    def _hear(self, step: int, tensors: Sequence[tuple[str, Tensor]], late: Late) -> None:
        """What was sent in the step before."""
        self._sent = None
        found = torch.tensor(late.read(), dtype=torch.int64)
        if not bool(found[:, -1].any()) and not bool((found == found[0]).all()):
            self._act(step, tensors, found[:, :-1])

    def _act(self, step: int, tensors: Sequence[tuple[str, Tensor]], digests: Tensor) -> None:
        ranks = [rank for rank in range(self.group.size) if not torch.equal(digests[rank], digests[0])]
        differing = (digests != digests[0]).any(0).nonzero().flatten().tolist()
        told = ", ".join(str(self.group.global_rank(rank)) for rank in ranks)
        text = (
            f"parameters have drifted apart: after {step} steps rank {told} and rank "
            f"{self.group.global_rank(0)} hold other bits in {len(differing)} of {len(tensors)} tensors, "
            f"first in {tensors[differing[0]][0]}"
        )
        thawed = [name for index in differing if (name := tensors[index][0]) in self._frozen]
        if thawed and not self._frozen_too:
            text += (
                f"; {thawed[0]} was frozen when DistributedDataParallel was built, which does not send its "
                "gradients: wrap the net in a new one behind requires_grad_(True)"
            )
        if self.on_drift == "raise":
            raise DriftError(
                f"{text}; look for what differs between the ranks (docs/reference/reliability.md), or pass "
                'on_drift="repair" to take the parameters of the first rank'
            )
        if self.on_drift == "warn":
            warnings.warn(text, stacklevel=2)
            return
        for index in differing:
            self._take_from_first(tensors[index][1])
        warnings.warn(f"{text}; repaired from rank {self.group.global_rank(0)}", stacklevel=2)

    def _gathered(self, values: Sequence[int], tensors: Sequence[tuple[str, Tensor]]) -> Tensor:
        """(ranks, numbers) as int64."""
        device = tensors[0][1].device if tensors else torch.device("cpu")
        mine = torch.tensor(values, dtype=torch.int64, device=device)
        everyone = mine.new_empty(self.group.size, mine.numel())
        self.group.all_gather(mine.view(torch.uint8), everyone.view(torch.uint8)).wait()
        return everyone.cpu()

    def _take_from_first(self, tensor: Tensor) -> None:
        """Everybody gathers everybody's bytes, which is seldom, and keeps those of the first rank."""
        values = tensor.detach().contiguous()
        data = values.view(-1).view(torch.uint8)
        for first in range(0, data.numel(), _REPAIR_BYTES):
            piece = data[first : first + _REPAIR_BYTES].clone()
            everyone = piece.new_empty(self.group.size, piece.numel())
            self.group.all_gather(piece, everyone).wait()
            data[first : first + _REPAIR_BYTES] = everyone[0]
        tensor.detach().copy_(values)


def digest(tensor: Tensor) -> int:
    """The digest of a tensor as a number; on a device the host waits for it."""
    return int(word_digest(tensor))


def word_digest(tensor: Tensor) -> Tensor:
    """64 bits of a tensor's bits: sums of its 64-bit words, row by row, each row weighted by its place.

    One pass at the speed of memory. Whatever changes a single number changes it; changes that cancel out
    within a row of 8192 floats do not.
    """
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    row_bytes = 8 * _ROW
    whole = data.numel() // row_bytes * row_bytes
    sums = [data[:whole].view(torch.int64).view(-1, _ROW).sum(1)]
    if whole < data.numel():
        tail = torch.nn.functional.pad(data[whole:], (0, -data.numel() % 8))
        sums.append(tail.view(torch.int64).sum().view(1))
    rows = torch.cat(sums)
    weights = (2 * torch.arange(rows.numel(), dtype=torch.int64, device=rows.device) + 1) * _ODD
    return (rows * weights).sum()


def drift_check(group: Group, module: nn.Module | None, every: int | None, on_drift: str) -> DriftCheck:
    """Of the parameters that DDP keeps equal; without a model there is nothing to look at."""
    if module is None:
        if every:
            raise PlanError(
                f"check_every={every}: without the model parameters cannot be compared between ranks; "
                "pass model= to ddp_hook, or check_every=0"
            )
        return DriftCheck(group, (), 0, on_drift)
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
    return DriftCheck(group, named, CHECK_EVERY if every is None else every, on_drift)
