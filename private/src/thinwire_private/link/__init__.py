"""The link: the only door of private inference to the network.

Reading order: frame (bytes of a message), counters, channel (what protocols see), memory (a pair for tests),
pump (the thread that reads and writes a socket), stream (a Channel over a socket), tls, handshake.
"""

from thinwire_private.link.channel import Channel
from thinwire_private.link.counters import Counters
from thinwire_private.link.frame import FRAME_OVERHEAD_BYTES, framed_bytes, num_frames
from thinwire_private.link.memory import memory_pair

__all__ = ["FRAME_OVERHEAD_BYTES", "Channel", "Counters", "framed_bytes", "memory_pair", "num_frames"]
