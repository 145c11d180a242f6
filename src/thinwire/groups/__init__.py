"""Groups: the only door to the network for gradients."""
