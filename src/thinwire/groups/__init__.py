"""Groups: the only way to the network for gradients."""
