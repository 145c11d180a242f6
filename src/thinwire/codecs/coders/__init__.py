"""Coders: the last link of a codec, numbers to packed bits."""
