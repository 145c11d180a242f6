"""The claims of the papers, each with the study that settles it here and a verdict made of its records.

claim (what a paper says) -> study -> runs (settings and a seed) -> records (a JSON line for each) -> evidence
(of the seeds that are complete) -> judge -> judgement (what was measured, and the verdict). `settled.py` says
whether there is enough for a verdict, `ledger.py` lists all claims, `page.py` writes docs/claims.md. The
claims themselves are in `papers/`, what is run for them in `studies/`.
"""
