"""Processes of one run: started together, watched together and stopped together."""
