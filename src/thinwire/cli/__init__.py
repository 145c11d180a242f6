"""The command line: one file per command; parse, call, print."""

from thinwire.cli.app import main

__all__ = ["main"]
