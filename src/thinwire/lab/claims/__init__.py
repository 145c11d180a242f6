"""The claims of the papers, each with the study that settles it here and a verdict made of its records."""
