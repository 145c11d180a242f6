"""A link between two workers: how long a message is on its way. Alpha and beta of the alpha-beta model."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from thinwire.errors import LabError
from thinwire.perf.pace import Pace
from thinwire.texts.rate import parse_rate

# Of 1538 bytes that an Ethernet frame takes (preamble and gap included) 1448 are payload of TCP.
TCP_SHARE = 1448 / 1538
# Not measured: what an exchange over TCP in one switched network usually sees. A probe replaces them.
TCP_LATENCY_S = 50e-6
TCP_MESSAGE_S = 5e-6
_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Link:
    """One direction of a link: a message of n bytes takes `latency_s + n / bytes_per_s`.

    `message_s` is what each further message to another peer costs a sender that sends many at once: the part
    of the latency for which it is busy itself. All inputs, none of them measured here; `source` says whose.

    >>> round(1e3 * Link("wire", 1e-3, 1e6).message(5000), 3)
    6.0
    """

    name: str
    latency_s: float
    bytes_per_s: float
    message_s: float = 0.0
    source: str = "given"
    burst_bytes: float = 0.0  # that a worker may send at once at a higher speed (a token bucket), as observed
    paces: tuple[Pace, ...] = ()  # whole collectives of one group, as measured: they go before the formulas

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise LabError(f"link {self.name}: bytes_per_s={self.bytes_per_s:g} must be above 0")
        if not (0 <= self.latency_s < math.inf and 0 <= self.message_s < math.inf):
            raise LabError(f"link {self.name}: latency_s and message_s must be 0 or above, and finite")

    def pace(self, kind: str) -> Pace | None:
        """How long a kind of act takes here, if that was measured."""
        return next((pace for pace in self.paces if pace.kind == kind), None)

    @property
    def busy(self) -> Link:
        """The link while all workers compute; the same if that was not measured."""
        return replace(self, paces=tuple(pace.busy for pace in self.paces))

    def scaled(self, factor: float) -> Link:
        """The link on which everything takes so many times as long."""
        return replace(
            self,
            latency_s=factor * self.latency_s,
            bytes_per_s=self.bytes_per_s / factor,
            message_s=factor * self.message_s,
            paces=tuple(pace.scaled(factor) for pace in self.paces),
        )

    def message(self, nbytes: float) -> float:
        """Seconds until one message of n bytes has arrived: alpha + n beta."""
        return self.latency_s + nbytes / self.bytes_per_s

    def straight(self, num_messages: float, nbytes: float) -> float:
        """Seconds until n bytes in several messages, sent at once to several peers, have arrived."""
        if num_messages <= 0:
            return 0.0
        return self.latency_s + (num_messages - 1) * self.message_s + nbytes / self.bytes_per_s


def _bus(name: str, gbytes: float, source: str) -> Link:
    """A link inside a node: the data sheet's rate, four fifths of which are assumed to be reached."""
    return Link(name, 10e-6, 0.8 * gbytes * 1e9, 1e-6, f"{source}, 80 % of it and 10 us assumed")


def _infiniband(name: str, gbit: float) -> Link:
    return Link(name, 5e-6, 0.9 * gbit * 1e9 / 8, 1e-6, f"{gbit:g} Gbit/s, 90 % of it and 5 us assumed")


LINKS: Mapping[str, Link] = MappingProxyType(
    {
        link.name: link
        for link in (
            _bus("pcie", 15.75, "PCI Express 3.0 x16, 15.75 GB/s a direction"),
            _bus("pcie4", 31.5, "PCI Express 4.0 x16, 31.5 GB/s a direction"),
            _bus("nvlink1", 80, "NVLink of the P100, 80 GB/s a direction"),
            _bus("nvlink", 150, "NVLink of the V100, 150 GB/s a direction"),
            _bus("nvlink3", 300, "NVLink of the A100, 300 GB/s a direction"),
            _bus("nvlink4", 450, "NVLink of the H100, 450 GB/s a direction"),
            _infiniband("ib100", 100),
            _infiniband("ib200", 200),
            _infiniband("ib400", 400),
        )
    }
)


def link_named(text: str) -> Link:
    """The link of a text: a name of LINKS, or a rate, which is taken as TCP over Ethernet.

    Behind a colon latency= overrules the named default.

    >>> link_named("1gbit:latency=2ms").latency_s
    0.002
    """
    name, colon, rest = text.strip().partition(":")
    link = LINKS.get(name.lower()) or _ethernet(name)
    if not colon:
        return link
    option, equals, value = rest.partition("=")
    if option.strip() != "latency" or not equals:
        raise LabError(f'link "{text}": behind the colon only latency= is known, as in "1gbit:latency=50us"')
    return replace(
        link, name=text.strip(), latency_s=_seconds(value, text), source=f"{link.source}; latency given"
    )


def _ethernet(name: str) -> Link:
    try:
        rate = parse_rate(name)
    except LabError:
        close = difflib.get_close_matches(name, LINKS, 1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise LabError(
            f'there is no link "{name}": {hint}write a rate such as 1gbit or 100mbit, or one of '
            f"{', '.join(LINKS)}"
        ) from None
    source = f"{name} Ethernet, {TCP_SHARE:.0%} of it behind TCP/IP headers, 50 us assumed"
    return Link(name, TCP_LATENCY_S, TCP_SHARE * rate / 8, TCP_MESSAGE_S, source)


def _seconds(text: str, where: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|ms|us|ns)\s*", text)
    if match is None:
        raise LabError(f'link "{where}": latency={text} is no time: write a number with s, ms, us or ns')
    return float(match[1]) * _UNITS_S[match[2]]
