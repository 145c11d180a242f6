"""The stream that exchanges run on beside the backward pass: of a GPU, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """On a CPU it does nothing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def mark(self) -> torch.cuda.Event | None:
        """What the current stream has been given so far."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    @contextmanager
    def behind(self, mark: torch.cuda.Event | None = None) -> Iterator[None]:
        """On the stream, behind what was marked."""
        with torch.cuda.stream(self._stream):
            if mark is not None:
                mark.wait()
            yield
