"""Stages: the links of a codec before its coder, numbers to numbers."""
