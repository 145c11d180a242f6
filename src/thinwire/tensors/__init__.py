"""Tensors without their data, where they lie in buffers, and the randomness they are rounded by."""
