"""The errors a user can meet; each message names the value, the rule and the way out."""

from __future__ import annotations


class ThinwireError(Exception):
    """Base of everything thinwire raises on purpose."""


class CodecError(ThinwireError, ValueError):
    """A codec text or option that cannot be honoured."""


class PlanError(ThinwireError, ValueError):
    """A plan that cannot work: an illegal route, mismatching ranks, tensors nobody can compress."""


class PeerError(ThinwireError, RuntimeError):
    """An exchange that failed because of another rank; names the rank and the stage."""


class DriftError(ThinwireError, RuntimeError):
    """Ranks that no longer hold the same parameters."""


class StateError(ThinwireError, ValueError):
    """A state dict that does not fit this compressor."""


class LabError(ThinwireError, RuntimeError):
    """A user's mistake in the laboratory: data, netlab, runs, command line."""


class PrivateError(ThinwireError, RuntimeError):
    """Private inference that is refused or cannot go on; never tells a secret."""


class LinkError(PrivateError):
    """The connection of private inference: frames, time-outs, TLS, a peer that is gone or another one."""


class MissingPackageError(ThinwireError, ImportError):
    """Something that another package brings."""
