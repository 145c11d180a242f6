"""The performance model: what a step takes on a cluster, per codec, before it runs."""
