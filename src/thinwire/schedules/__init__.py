"""Controls: how strong a codec is over time."""
