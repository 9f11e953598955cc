"""Ready middleware: what wraps each invocation of a tool, inside its locks. One file each."""

from dispatch.errors import AttemptTimedOut
from dispatch.middleware.attempt_timeout import AttemptTimeout

__all__ = ["AttemptTimedOut", "AttemptTimeout"]
