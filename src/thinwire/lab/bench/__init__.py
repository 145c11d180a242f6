"""Benchmarks: kernels, one exchange, one training step. Variants are interleaved; ratios come with their spread."""
