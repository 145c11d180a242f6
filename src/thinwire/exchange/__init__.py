"""The exchange: a plan at work, its state, and what is told about it."""
