"""The laboratory, in groups that import one way, from top to bottom.

process    processes started, watched and stopped together
data       data sets, and the order of their examples
models     networks by name
net        networks on one machine: loopback, an emulated link, netlab
report     outcomes, comparisons, records in folders, reports
run        training runs: recipes, workers, checkpoints, sessions
bench      speed, memory and digests of exchanges
study      what methods and number formats do to recorded gradients
doctor     what thinwire can do on this machine
"""
