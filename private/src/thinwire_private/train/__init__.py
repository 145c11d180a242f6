"""Training for private inference: quantization-aware training, export, and the search for bit widths."""
