"""netlab: a cluster on one machine, N hosts as network namespaces with links shaped by the kernel.

Reading order: cluster (the lab), shape (one link), iproute (the door to ip and tc), session (a command on
every host), counters (bytes seen by the kernel), ledger (a session with its counters), janitor (nothing is
left behind).
"""

from thinwire.lab.netlab.cluster import Netlab, available
from thinwire.lab.netlab.counters import HEADER_BYTES, Counters, read_counters
from thinwire.lab.netlab.janitor import sweep
from thinwire.lab.netlab.ledger import Entry, Ledger, run_counted
from thinwire.lab.netlab.session import Completed, HostFailed
from thinwire.rate import parse_rate

__all__ = [
    "HEADER_BYTES",
    "Completed",
    "Counters",
    "Entry",
    "HostFailed",
    "Ledger",
    "Netlab",
    "available",
    "parse_rate",
    "read_counters",
    "run_counted",
    "sweep",
]
