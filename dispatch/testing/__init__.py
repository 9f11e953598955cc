"""For tests of tools, descriptors and harnesses: time that costs nothing to wait for."""

from dispatch.testing.clock import VirtualTimeLoop, run_in_virtual_time

__all__ = ["VirtualTimeLoop", "run_in_virtual_time"]
