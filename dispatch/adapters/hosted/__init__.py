"""For hosts that bring their own tools, and may run each call in a task of its own.

What the frameworks' adapters stand on; it knows no framework. `HostedTools` are the host's tools as
a toolbox, `HostedTurns` the host's calls as turns of a dispatcher.
"""

from dispatch.adapters.hosted.tools import HostedTools
from dispatch.adapters.hosted.turns import HostedTurns, HostOptions

__all__ = ["HostOptions", "HostedTools", "HostedTurns"]
