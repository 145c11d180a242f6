"""Two-party protocols, one operator per file or family; each predicts its messages and runs."""
