"""The reference kernels: plain torch, the definition of what is right on every device."""
