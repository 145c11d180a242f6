"""The laboratory, in groups that import one way, from top to bottom.

process    processes started, watched and stopped together
records    files of JSON lines, and the commit that made them
spread     measurements of one thing: their middle and their spread
data       data sets, and the order of their examples
models     networks by name
net        networks on one machine: loopback, an emulated link, netlab
report     outcomes, comparisons, records in folders, reports, pictures
run        training runs: recipes, workers, checkpoints, sessions
bench      speed, memory and digests of exchanges
simulated  what `auto` decides on simulated clusters
study      what methods and number formats do to gradients and to accuracy
figure5    TernGrad's performance model beside ours
private    benches of private inference
claims     what the papers claim, and the verdict on each
cli        the commands
"""
