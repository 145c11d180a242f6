"""Memories: what a rank holds back from one step to the next."""
