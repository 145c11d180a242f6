"""Training runs: recipes, the workers that carry them out, checkpoints, and sessions of several runs."""
