"""Codecs: stages (numbers to numbers), then a coder (numbers to bits)."""
