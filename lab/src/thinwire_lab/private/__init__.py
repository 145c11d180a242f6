"""Benches of private inference: what was run is kept as records, and tables are made from records.

Reading order: record (one finished run), parties (two processes), ladder, ...
"""
