"""The claims of the papers, each with the study that tests it here and a verdict made of its records.

claim (what a paper says) -> study -> runs (settings and a seed) -> records (a JSON line for each) -> evidence
(of the seeds that are complete) -> judge -> judgement (what was measured, and the verdict).

claim.py             these nouns
gradient_studies.py  what is run for claims about single gradients
training_studies.py  what is run for claims about training and time
papers/              the claims themselves
registry.py          all claims; whether there is enough for a verdict; docs/background/claims.md
"""
