"""Every interleaving of small turns through the pure machines: `python -m tests.exhaustive`."""
