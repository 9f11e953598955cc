"""For tests of tools, descriptors and harnesses: time, interleavings, bad tools, leaks, a model."""

from dispatch.testing.clock import VirtualTimeLoop, run_in_virtual_time
from dispatch.testing.explore import ExplorerLoop, explore, explore_cancels
from dispatch.testing.fakes import failing_at, hanging, leaking, refusing, stuck
from dispatch.testing.leaks import assert_no_leaks
from dispatch.testing.models import ScriptedModel

__all__ = [
    "ExplorerLoop",
    "ScriptedModel",
    "VirtualTimeLoop",
    "assert_no_leaks",
    "explore",
    "explore_cancels",
    "failing_at",
    "hanging",
    "leaking",
    "refusing",
    "run_in_virtual_time",
    "stuck",
]
