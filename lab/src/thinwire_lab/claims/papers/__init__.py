"""One file for claims that one study settles: what the paper says, how it is judged, what is drawn."""
