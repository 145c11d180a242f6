"""Private inference: a quantized network run between two parties, neither of which sees what the other holds.

Reading order: README.md beside this file.
"""

from thinwire_private.client import Client
from thinwire_private.server import Server

__all__ = ["Client", "Server"]
__version__ = "0.2.0"
