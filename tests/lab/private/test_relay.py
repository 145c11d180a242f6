"""The relay delays each direction by half the round trip and loses nothing."""

from __future__ import annotations

import os
import threading
import time

from thinwire_lab.private.latency import Relay
from thinwire_private.link.tls import accept, connect, listen


def test_a_round_trip_takes_its_time_and_bytes_arrive() -> None:
    data = os.urandom(1 << 20)
    with listen(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]

        def echo() -> None:
            with accept(listener.accept()[0], None) as channel:
                for size in (1, len(data)):
                    channel.send(channel.receive(size))
                channel.receive(1)

        thread = threading.Thread(target=echo)
        thread.start()
        with Relay(("127.0.0.1", 0), address, 0.1) as relay, connect(relay.address) as channel:
            start = time.monotonic()
            channel.send(b"x")
            channel.receive(1)
            assert time.monotonic() - start > 0.1  # never early; how late is up to the machine
            channel.send(data)
            assert bytes(channel.receive(len(data))) == data
            channel.send(b"x")
            thread.join(120)
    assert not thread.is_alive()
