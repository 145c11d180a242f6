"""Benches, studies and the demo of private inference: finished runs are records, tables come from records.

Reading order: records (one finished run), parties (two processes), ladder, latency, rival, fuzz; demo, study.
"""
