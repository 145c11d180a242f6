"""Networks on one machine: loopback, an emulated link, or netlab's hosts with links shaped by the kernel.

netlab makes a cluster of N hosts as network namespaces. Reading order: network (where workers run), workers
(how they meet, and their rows), netlab (the hosts, and a command on each), fabric and forwarder (the switch
between them, and latency), iproute (the door to ip and tc: shapes of links, bytes that the kernel saw,
nothing left behind).
"""
