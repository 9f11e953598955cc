"""What an object's state is, so that two of them can be told apart. Pure.

A picture is a plain value: equal pictures mean equal states, with the order of dicts and with the
objects that occur more than once. Times of day are left out, since no two runs share them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

PLAIN = (type(None), bool, int, float, complex, str, bytes)
CLOCKED = frozenset({"_last_modified"})
"""Attributes that say when something happened."""
Picture = str | tuple[Any, ...]


def picture(value: object) -> Picture:
    """The whole of a value."""
    return _picture(value, {})


def attributes(instance: object) -> dict[str, Picture]:
    """A picture of each of an object's attributes, by name."""
    return {name: picture(value) for name, value in vars(instance).items()}


def shared(instance: object) -> set[tuple[str, str]]:
    """The pairs of an object's attributes that have an object in common which can change."""
    within = {name: set(_changeable(value, {})) for name, value in sorted(vars(instance).items())}
    return {(one, other) for one, other in combinations(within, 2) if within[one] & within[other]}


def _picture(value: object, seen: dict[int, int]) -> Picture:
    if type(value) is str:  # nearly all of them
        return value
    kind = type(value).__name__
    if isinstance(value, PLAIN):
        return (kind, repr(value))
    if isinstance(value, tuple):
        return (kind, *(_picture(one, seen) for one in value))
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    if isinstance(value, random.Random):
        return (kind, value.getstate())
    if isinstance(value, set | frozenset):
        return (kind, *sorted((_picture(one, seen) for one in value), key=repr))
    return (kind, *(_picture(part, seen) for part in _parts(value)))


def _changeable(value: object, seen: dict[int, object]) -> Iterator[int]:
    if isinstance(value, PLAIN) or id(value) in seen:
        return
    seen[id(value)] = value
    if not isinstance(value, tuple | frozenset):
        yield id(value)
    for part in _parts(value):
        yield from _changeable(part, seen)


def _parts(value: object) -> Iterator[object]:
    """What is directly inside a value."""
    if isinstance(value, dict):
        yield from (part for pair in value.items() for part in pair)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif hasattr(value, "__dict__"):
        yield from ((name, part) for name, part in vars(value).items() if name not in CLOCKED)
    else:
        raise TypeError(f"{type(value).__name__} is not known to the pictures of states")
