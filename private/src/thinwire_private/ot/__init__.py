"""Oblivious transfer, free of sockets: base OT, SoftSpoken extension, KK13, hash, packing."""
