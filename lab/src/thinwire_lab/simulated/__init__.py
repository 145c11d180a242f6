"""Simulated clusters with a clock of their own: what `auto` decides on links that nobody here has."""
