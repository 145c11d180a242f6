"""The network half: graphs of integer layers, what they compute exactly, and the file they are kept in."""
