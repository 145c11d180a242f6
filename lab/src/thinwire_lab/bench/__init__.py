"""Benchmarks: kernels, one exchange, one training step; variants interleaved, ratios with their spread."""
