"""Between the host and a device: numbers go there without a wait, and one word comes back a step later.

On the CPU the host reads for free, and everything here is known at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

HOST = torch.device("cpu")
_ROOM = 64  # slots at the start; there are as many as runs of a step


def is_host(device: torch.device) -> bool:
    """Whether the host reads its tensors without waiting."""
    return device.type == "cpu"


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """Numbers made by the host, on a device. By pinned memory: from pageable memory the host would wait."""
    if is_host(device):
        return numbers
    return numbers.pin_memory().to(device, non_blocking=True)


def event_on(device: torch.device) -> Any:
    """An event behind all that the current stream of a device was given so far."""
    event = torch.get_device_module(device).Event()
    event.record()
    return event


class Late:
    """Numbers on their way from a device to the host: `read` waits for them, in vain a step later.

    >>> Late(torch.tensor([3, 4])).read()
    [3, 4]
    """

    def __init__(self, numbers: Tensor) -> None:
        self._event: Any = None
        self._there = numbers
        if not is_host(numbers.device):
            self._there = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._there.copy_(numbers, non_blocking=True)
            self._event = event_on(numbers.device)

    def read(self) -> Any:
        if self._event is not None:
            self._event.synchronize()
        return self._there.tolist()


def quotient(x: Tensor, by: float) -> Tensor:
    """x / by, rounded as IEEE 754 wants it: CUDA multiplies by 1 / by if that is a number of the host."""
    return x / by if is_host(x.device) else x / torch.full((), by, dtype=x.dtype, device=x.device)


def is_finite(x: Tensor) -> bool:
    """One pass and no temporary; on a device the host waits.

    A sum that is finite has finite terms. One that is not may have overflowed: then the least and the
    greatest value tell, and NaN is both.
    """
    if not is_host(x.device):
        return bool(all_finite(x))
    if bool(torch.isfinite(x.sum())):
        return True
    return all(bool(torch.isfinite(end)) for end in x.aminmax())


def all_finite(x: Tensor) -> Tensor:
    """Whether all numbers are finite, as a word on their device."""
    return _largest(x) < torch.inf


def _largest(x: Tensor) -> Tensor:
    """max|x|, NaN if there is one; no tensor as large as x is made."""
    if x.numel() == 0:
        return x.new_zeros(())
    largest: Tensor = torch.linalg.vector_norm(x, torch.inf)
    return largest


class StepVerdict(ABC):
    """Whether all means of a step are finite; `known` is None where only the device knows.

    `earlier`: what only the device knew at the end of the step before, and the host knows now.
    """

    known: bool | None
    earlier: bool | None = None

    @abstractmethod
    def select(self, new: Tensor, old: Tensor | float) -> Tensor:
        """`new` if the step was finite, else `old`; on a device into the memory of `new`."""

    @abstractmethod
    def now(self) -> bool:
        """Whether it was finite; on a device the host waits for the answer."""


class HostVerdict(StepVerdict):
    def __init__(self, finite: bool) -> None:
        self.known: bool | None = finite
        self._finite = finite

    def select(self, new: Tensor, old: Tensor | float) -> Tensor:
        return new if self._finite else new.copy_(torch.as_tensor(old))

    def now(self) -> bool:
        return self._finite


FINITE: StepVerdict = HostVerdict(True)
NOT_FINITE: StepVerdict = HostVerdict(False)


class DeviceVerdict(StepVerdict):
    """`finite` is a word on the device: what depends on it is selected there, in the same step."""

    known = None

    def __init__(self, finite: Tensor, earlier: bool | None = None) -> None:
        self.finite, self.earlier = finite, earlier

    def select(self, new: Tensor, old: Tensor | float) -> Tensor:
        if isinstance(old, Tensor):
            return torch.where(self.finite, new, old, out=new)
        return new.masked_fill_(self.finite.logical_not(), old)

    def now(self) -> bool:
        return bool(self.finite)


def finite_verdict(x: Tensor) -> StepVerdict:
    """Whether all of these numbers are finite."""
    if not is_host(x.device):
        return DeviceVerdict(all_finite(x))
    return FINITE if is_finite(x) else NOT_FINITE


class Judge(ABC):
    """Sees the means of a step, bucket by bucket, and gives a verdict at its end."""

    @abstractmethod
    def see(self, bucket: Hashable, mean: Tensor) -> None:
        """Looks at numbers of a mean."""

    @abstractmethod
    def replaced(self, bucket: Hashable, finite: bool) -> None:
        """Other numbers took the place of a bucket's means: whether they are finite is all that counts."""

    @abstractmethod
    def word(self) -> Tensor:
        """1 if a mean of the step under way is not finite, as an int32 that ranks can take the maximum of."""

    @abstractmethod
    def take(self, word: Tensor) -> None:
        """The maximum of all ranks' words."""

    @abstractmethod
    def end_step(self) -> StepVerdict:
        """The verdict; the next step begins."""

    def last(self) -> bool | None:
        """Of the step that ended last: what its verdict was, if nobody knew it then. The host waits."""
        return None


class HostJudge(Judge):
    """For the CPU: everything is known at once.

    >>> judge = HostJudge()
    >>> judge.see("a", torch.tensor([1.0])), judge.see("b", torch.tensor([torch.nan]))
    (None, None)
    >>> judge.end_step().now(), judge.end_step().now()
    (False, True)
    """

    def __init__(self) -> None:
        self._spoilt: set[Hashable] = set()

    def see(self, bucket: Hashable, mean: Tensor) -> None:
        if bucket not in self._spoilt and not is_finite(mean):
            self._spoilt.add(bucket)

    def replaced(self, bucket: Hashable, finite: bool) -> None:
        (self._spoilt.discard if finite else self._spoilt.add)(bucket)

    def word(self) -> Tensor:
        return torch.tensor([bool(self._spoilt)], dtype=torch.int32)

    def take(self, word: Tensor) -> None:
        if bool(word):
            self._spoilt.add(None)

    def end_step(self) -> StepVerdict:
        verdict = NOT_FINITE if self._spoilt else FINITE
        self._spoilt.clear()
        return verdict


class DeviceJudge(Judge):
    """For devices: the largest |mean| of every run goes to a slot of its own, and the host reads no slot.

    The word of a step is copied to the host while the next step runs, and read at that one's end.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._used = device, 0
        self._slots = torch.zeros(_ROOM, dtype=torch.float64, device=device)
        self._most = torch.zeros((), dtype=torch.float64, device=device)  # of all slots
        self._fine = torch.ones((), dtype=torch.bool, device=device)  # what a step without slots is
        self._places: dict[Hashable, list[int]] = {}  # a bucket's slots
        self._taken: Tensor | None = None  # what all ranks agreed on
        self._last: Late | None = None

    def see(self, bucket: Hashable, mean: Tensor) -> None:
        if mean.numel():
            torch.linalg.vector_norm(mean, torch.inf, dtype=torch.float64, out=self._slot(bucket))

    def replaced(self, bucket: Hashable, finite: bool) -> None:
        for place in self._places.pop(bucket, ()):
            self._slots[place].zero_()
        if not finite:
            self._slot(bucket).fill_(torch.inf)

    def excuse(self, bucket: Hashable, vetoed: Tensor) -> None:
        """Where `vetoed` (a word on the device) is true, zeros took the place of the bucket's means."""
        for place in self._places.get(bucket, ()):
            self._slots[place].masked_fill_(vetoed, 0.0)

    def word(self) -> Tensor:
        return self._finite().logical_not().to(torch.int32).view(1)

    def take(self, word: Tensor) -> None:
        self._taken = word

    def end_step(self) -> StepVerdict:
        finite = self._finite() if self._taken is None else self._taken.view(()) == 0
        earlier, self._last = self.last(), Late(finite)
        self._places, self._taken, self._used = {}, None, 0
        return DeviceVerdict(finite, earlier)

    def last(self) -> bool | None:
        late, self._last = self._last, None
        return None if late is None else bool(late.read())

    def _finite(self) -> Tensor:
        """NaN is the largest of all, and not less than infinity."""
        if not self._used:
            return self._fine
        return torch.amax(self._slots[: self._used], dim=0, out=self._most) < torch.inf

    def _slot(self, bucket: Hashable) -> Tensor:
        if self._used == self._slots.numel():
            self._slots = torch.cat([self._slots, torch.zeros_like(self._slots)])
        self._places.setdefault(bucket, []).append(self._used)
        self._used += 1
        return self._slots[self._used - 1]


def judge_on(device: torch.device) -> Judge:
    return HostJudge() if is_host(device) else DeviceJudge(device)


def int_words(words: Iterable[int] | Sequence[int], device: torch.device) -> Tensor:
    """32-bit words, maybe above 2^31, as int32 on a device."""
    return sent(torch.tensor(list(words), dtype=torch.int64).to(torch.int32), device)
