"""The link: the only door of private inference to the network.

Reading order: channel (what protocols see, and the bytes of a message), stream (a Channel over a socket),
tls (connections between machines), handshake.
"""
