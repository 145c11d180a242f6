"""The claims, paper by paper: what each says, how it is judged, what is drawn."""
