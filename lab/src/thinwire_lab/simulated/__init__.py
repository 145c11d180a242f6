"""Simulated clusters with a simulated clock: what `auto` decides on links that are not here."""
