"""A device whose tensors the host cannot read, for running the line as on a GPU where there is none.

Tensors say that they are on "meta" and hold a CPU tensor inside. A dispatch mode runs what torch is asked to
do on what is inside, and notes every act: kernels and torch's own, and every act for which the host of a GPU
would wait: reading a number, `nonzero`, copies to pageable memory or from it. What is copied to pinned memory
arrives when an event behind the copy is waited for, not before: numbers that are read too early are wrong.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from thinwire.groups.base import Done, Pending
from thinwire.groups.wrappers import WrappedGroup
from thinwire.kernels import Kernels
from thinwire.kernels.reference import fourier, linalg

DEVICE = torch.device("meta")
LARGE = 1000  # bytes
_READING = {"_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "masked_select", "_unique2"}
_NO_LAUNCH = {
    "view", "slice", "select", "expand", "detach", "unsqueeze", "squeeze", "t", "transpose", "split",
    "split_with_sizes", "unbind", "alias", "empty", "new_empty", "empty_like", "as_strided", "_unsafe_view",
    "permute", "is_pinned", "_pin_memory", "_reshape_alias", "unfold", "diagonal", "empty_strided",
    "new_empty_strided", "narrow",
}  # fmt: skip


class Opaque(Tensor):
    """A tensor of the device; `inside` is what a GPU would hold."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> Opaque:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inside.shape,
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            device=DEVICE,
        )
        made.inside = inside
        return made  # type: ignore[no-any-return]

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def data_ptr(self) -> int:
        return self.inside.data_ptr()

    def tolist(self) -> Any:
        return _here().read("tolist", self.inside.tolist)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return _here().read("numpy", self.inside.numpy)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} on a tensor of the device, outside of `on_device`")


@dataclass
class Trace:
    """What was asked of the device in a step, in order."""

    kernels: list[str] = field(default_factory=list)  # thinwire's
    ops: list[str] = field(default_factory=list)  # torch's, as far as they launch something
    waits: list[str] = field(default_factory=list)  # for which the host of a GPU would wait
    sent: int = 0  # copies from pinned memory
    acts: list[str] = field(default_factory=list)  # all of these, and the group's
    places: list[tuple[str, int]] = field(default_factory=list)  # of large tensors that kernels were given
    made: list[str] = field(default_factory=list)  # acts that took memory, and who asked for them
    kept: list[tuple[str, int]] = field(default_factory=list)  # acts on older memory, and where they wrote

    def launches(self) -> Counter[str]:
        return Counter(self.kernels)


class OpaqueMode(TorchDispatchMode):
    """One rank's device. `epoch` counts the steps; events of earlier ones are over."""

    def __init__(self) -> None:
        super().__init__()
        self.trace, self.epoch = Trace(), 0
        self._pinned: dict[int, Tensor] = {}
        self._landing: list[Callable[[], None]] = []
        self._new: list[Opaque] = []  # of this step

    def next_step(self) -> Trace:
        """The trace of the step that ends."""
        done, self.trace, self._new = self.trace, Trace(), []
        self.epoch += 1
        return done

    def read(self, what: str, act: Callable[[], Any]) -> Any:
        self.trace.waits.append(what)
        return act()

    def launch(self, name: str) -> None:
        self.trace.kernels.append(name)
        self.trace.acts.append(name)

    def land(self) -> None:
        """Copies to the host that are over now."""
        landing, self._landing = self._landing, []
        for arrive in landing:
            arrive()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, dict(kwargs or {})
        leaves = pytree.tree_leaves((args, kwargs))
        ours = any(isinstance(leaf, Opaque) for leaf in leaves)
        strangers = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.device == DEVICE]
        assert all(isinstance(leaf, Opaque) for leaf in strangers), (
            f"{name}: made by torch.tensor(..., device=)"
        )
        if kwargs.pop("pin_memory", None) or name == "_pin_memory":
            return self._pin(func, args, kwargs)
        if name == "is_pinned":
            return self._is_pinned(args[0])
        goes = kwargs.get("device")
        if goes is not None and torch.device(goes) == DEVICE:
            kwargs["device"] = torch.device("cpu")
            made = True
        else:
            made = ours and not (name == "_to_copy" and goes is not None)
        if name in ("copy_", "_to_copy") and self._crosses(name, args, made):
            return self._copy(func, name, args, kwargs, made)
        if ours or made:
            self._note(name, args)
        if name in ("div", "div_") and ours and not isinstance(args[1], Tensor) and not kwargs:
            args = args[0], 1 / torch.tensor(args[1], dtype=args[0].dtype)  # as CUDA does it
            func = torch.ops.aten.mul.Tensor if name == "div" else torch.ops.aten.mul_.Tensor
        result = _wrapped(func(*_inside(args), **_inside(kwargs)), made, args)
        self._note_memory(name, leaves, result)
        return result

    def _note_memory(self, name: str, given: list[Any], result: Any) -> None:
        """Whether an act wrote to memory of an earlier step, or took new memory."""
        known = {_storage(leaf) for leaf in given if isinstance(leaf, Opaque)}
        new = {_storage(leaf) for leaf in self._new}
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Opaque) and _storage(leaf) not in known:
                self._new.append(leaf)  # kept: no other tensor of this step may come to lie there
                self.trace.made.append(f"{name} in {_asked_by()}")
            elif isinstance(leaf, Opaque) and _storage(leaf) not in new and name not in _NO_LAUNCH:
                self.trace.kept.append((name, leaf.data_ptr()))

    def _note(self, name: str, args: Any) -> None:
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        masks = [i for i in indices if isinstance(i, Tensor) and i.dtype == torch.bool] if indices else ()
        if name in _READING or masks or (name == "repeat_interleave" and len(args) == 1):
            self.trace.waits.append(name)
        elif name not in _NO_LAUNCH:
            self.trace.ops.append(name)
            self.trace.acts.append(name)

    def _crosses(self, name: str, args: Any, made: bool) -> bool:
        """Whether a copy is between the host and the device."""
        if name == "copy_":
            return isinstance(args[0], Opaque) != isinstance(args[1], Opaque)
        return isinstance(args[0], Opaque) != made

    def _copy(self, func: Any, name: str, args: Any, kwargs: Any, made: bool) -> Any:
        host = args[1] if name == "copy_" and isinstance(args[0], Opaque) else args[0]
        waits = not (self._is_pinned(host) and (kwargs.get("non_blocking") or True in args[2:]))
        if waits:
            self.trace.waits.append(f"{name} of {tuple(args[0].shape)}")
        else:
            self.trace.sent += 1
        if name == "copy_" and not isinstance(args[0], Opaque) and not waits:
            source = args[1].inside.clone()
            args[0].fill_(-77)  # until it has arrived
            self._landing.append(lambda: func(args[0], source))
            return args[0]
        result = _wrapped(func(*_inside(args), **_inside(kwargs)), made, args)
        self._note_memory(name, pytree.tree_leaves((args, kwargs)), result)
        return result

    def _pin(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        copied = func.overloadpacket.__name__ == "_pin_memory"
        made: Tensor = args[0].clone() if copied else func(*args, **kwargs)
        self._pinned[made.data_ptr()] = made  # kept: no other tensor may come to lie there
        return made

    def _is_pinned(self, tensor: Tensor) -> bool:
        return tensor.data_ptr() in self._pinned


def _inside(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.inside if isinstance(leaf, Opaque) else leaf, tree)


def _wrapped(result: Any, on_device: bool, args: Any) -> Any:
    """Results of the device are of the device; an act in place gives the tensor that it was given."""
    given = {id(leaf.inside): leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Opaque)}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not on_device:
            return leaf
        return given.get(id(leaf)) if id(leaf) in given else Opaque(leaf)

    return pytree.tree_map(one, result)


def _storage(tensor: Opaque) -> int:
    return tensor.inside.untyped_storage().data_ptr()


def _asked_by() -> str:
    """The function of thinwire nearest to an act, as file:function."""
    frame: Any = sys._getframe(1)
    while frame and f"{os.sep}thinwire{os.sep}" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}" if frame else "a test"


_threads = threading.local()
_numbers = count()


def _epoch() -> int:
    mode: OpaqueMode | None = getattr(_threads, "mode", None)
    return 0 if mode is None else mode.epoch


def _here() -> OpaqueMode:
    found: OpaqueMode = _threads.mode
    return found


@contextmanager
def on_device() -> Iterator[OpaqueMode]:
    """In here this thread works with the device; `torch.meta` is its module (see `DeviceModule`)."""
    mode = OpaqueMode()
    before, _threads.mode = getattr(_threads, "mode", None), mode
    try:
        with mode:
            yield mode
    finally:
        _threads.mode = before


def to_device(x: Tensor) -> Tensor:
    """A copy that no test counts."""
    return Opaque(x.clone())


def to_host(x: Tensor) -> Tensor:
    assert isinstance(x, Opaque)
    return x.inside.clone()


class Event:
    """Over in the step after that in which it was recorded; before, who waits for it waits for the device."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._epoch, self.number = -1, next(_numbers)

    def record(self, stream: object = None) -> None:
        self._epoch = _epoch()
        self.stream = DeviceModule.current()
        DeviceModule.log.append((self.stream, f"record {self.number}"))

    def wait(self, stream: object = None) -> None:
        DeviceModule.log.append((DeviceModule.current(), f"wait {self.number}"))

    def query(self) -> bool:
        return self._epoch < _here().epoch

    def elapsed_time(self, end: Event) -> float:
        assert end.query()
        return 1.0

    def synchronize(self) -> None:
        mode = _here()
        if self._epoch == mode.epoch:
            mode.trace.waits.append("synchronize")
        mode.land()


class DeviceModule:
    """What `torch.cuda` is to a GPU; `log` has what every stream was given, in order."""

    Event = Event
    log: ClassVar[list[tuple[str, str]]] = []

    @staticmethod
    def Stream(device: torch.device) -> str:
        return f"side stream {next(_numbers)}"

    @staticmethod
    def current() -> str:
        return getattr(_threads, "stream", "caller's stream")

    @staticmethod
    @contextmanager
    def stream(stream: str) -> Iterator[None]:
        before, _threads.stream = DeviceModule.current(), stream
        try:
            yield
        finally:
            _threads.stream = before


class _Family:
    """Kernels as a GPU has them: the host launches them and sees nothing."""

    def __init__(self, name: str, kernels: Any) -> None:
        self._name, self._kernels = name, kernels

    def __getattr__(self, kernel: str) -> Callable[..., None]:
        def launch(*args: Any) -> None:
            for arg in args:
                ours = not isinstance(arg, Tensor) or isinstance(arg, Opaque)
                assert ours, f"{self._name}.{kernel} got a tensor of the host"
                if isinstance(arg, Opaque) and arg.nbytes >= LARGE:
                    _here().trace.places.append((kernel, arg.data_ptr()))
            _here().launch(f"{self._name}.{kernel}")
            getattr(self._kernels, kernel)(*_inside(args))

        return launch


def opaque_kernels(kernels: Kernels) -> Kernels:
    """The same kernels behind a door through which only tensors of the device go.

    Products and Fourier transforms are torch's own acts on the device, as they are on a GPU.
    """
    families = {one.name for one in fields(Kernels)} - {"name", "on_device", "products", "fourier"}
    made = {name: _Family(name, getattr(kernels, name)) for name in families}
    return replace(kernels, name="opaque", on_device=True, products=linalg, fourier=fourier, **made)


class OpaqueGroup(WrappedGroup):
    """Exchanges what is inside; its acts are those of the network, not of the device."""

    def all_reduce(self, tensor: Tensor) -> Pending:
        return self._act("all_reduce", self.inner.all_reduce, tensor)

    def all_reduce_max(self, words: Tensor) -> Pending:
        return self._act("all_reduce_max", self.inner.all_reduce_max, words)

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        return self._act("all_to_all", self.inner.all_to_all, send, receive)

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        return self._act("all_gather", self.inner.all_gather, send, receive)

    def _act(self, name: str, act: Callable[..., Pending], *tensors: Tensor) -> Pending:
        assert all(isinstance(tensor, Opaque) for tensor in tensors), f"{name} of a tensor of the host"
        _here().trace.acts.append(name)
        act(*_inside(tensors)).wait()
        return Done()
