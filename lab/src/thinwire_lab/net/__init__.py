"""Networks on one machine: loopback, an emulated link, or netlab's hosts with links shaped by the kernel.

netlab makes a cluster of N hosts as network namespaces. Reading order: network (where workers run), workers
(their rows), netlab (the hosts), link_shape (one link), iproute (the door to ip and tc), counters (bytes seen
by the kernel), counted_run (a command on every host with its counters), janitor (nothing is left behind),
link_speed (how fast a link is).
"""
