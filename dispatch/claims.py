"""Keys, modes and claims: the one mechanism that orders two calls.

A key is a hierarchical name of a resource, a tuple of strings; two keys overlap when one is a
prefix of the other. A claim is a key with a mode. Keys of kind `tool` have a root of their own
that `()` does not cover. The idea is granular locking (Gray, Lorie, Putzolu, Traiger 1976),
with prefix overlap in place of intention locks.

Everything here is pure but `FileKeys`, which resolves paths on the disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dispatch.errors import DeclarationError
from dispatch.render import one_line

Key = tuple[str, ...]

READ = "read"
WRITE = "write"
SELF = "self"
PEER = "peer"
RESERVED_MODES = frozenset({READ, WRITE, SELF, PEER})
FILE = "file"
TOOL = "tool"
SESSION = "session"
MAX_CLAIMS = 10_000
"""Of one call. Whoever says more than that (for ever, perhaps) might as well claim everything."""
LONGEST_PATH = 4096
"""No system opens a longer one, and resolving it would take time that grows with its square."""


class Claim(NamedTuple):
    """A key with a mode: `read` (shared), `write` (exclusive) or a commuting mode's name."""

    key: Key
    mode: str


def read(*segments: str | int | os.PathLike[str]) -> Claim:
    """Claim a resource, and everything below it, for reading: shared with other readers.

    `read("file", path)` names a file or directory, relative to the dispatcher's root.
    `read()` claims everything. Raises `DeclarationError` for a segment that is not a name.
    """
    return Claim(_key(segments), READ)


def write(*segments: str | int | os.PathLike[str]) -> Claim:
    """Claim a resource, and everything below it, for itself alone. See `read`."""
    return Claim(_key(segments), WRITE)


def commute(mode: str, *segments: str | int | os.PathLike[str]) -> Claim:
    """Claim a resource in a commuting mode, e.g. `append`: shared with the same mode only.

    Raises `DeclarationError` for a reserved name (read, write, self, peer).
    """
    if not mode or mode in RESERVED_MODES:
        names = ", ".join(sorted(RESERVED_MODES))
        raise DeclarationError(f"{mode!r} cannot name a commuting mode; reserved are: {names}")
    return Claim(_key(segments), mode)


def _key(segments: Iterable[object]) -> Key:
    key = []
    for segment in segments:
        if isinstance(segment, str):
            key.append(segment)
        elif isinstance(segment, os.PathLike):
            key.append(os.fsdecode(segment))
        elif isinstance(segment, int) and not isinstance(segment, bool):
            key.append(str(segment))
        else:
            raise DeclarationError(
                f"a key is made of strings, but one segment is {type(segment).__name__};"
                " write read('kind', 'name')"
            )
    return tuple(key)


def overlap(first: Key, second: Key) -> bool:
    """Whether one key is a prefix of the other, in the same root."""
    if (first[:1] == (TOOL,)) != (second[:1] == (TOOL,)):
        return False
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def clash(first: Claim, second: Claim) -> bool:
    """Whether the two claims exclude each other."""
    if first.mode == second.mode and first.mode != WRITE:
        return False
    return overlap(first.key, second.key)


def conflict(first: Iterable[Claim], second: Iterable[Claim]) -> tuple[Claim, Claim] | None:
    """The first pair of claims that exclude each other, or None."""
    others = tuple(second)
    for mine in first:
        for other in others:
            if clash(mine, other):
                return mine, other
    return None


def combine(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """One claim per key, in order of first mention: two different modes on one key are a write."""
    claims = tuple(claims)
    if len(claims) < 2:
        return claims
    modes: dict[Key, str] = {}
    for key, mode in claims:
        known = modes.get(key)
        modes[key] = mode if known is None or known == mode else WRITE
    return tuple(Claim(key, mode) for key, mode in modes.items())


def checked(declared: object) -> tuple[Claim, ...]:
    """Claims from what a `resource_keys` returned: an iterable of claims, or of keys (writes).

    Raises `DeclarationError` for anything else; one bare claim, key or string is a mistake.
    """
    if isinstance(declared, Claim | str) or not isinstance(declared, Iterable):
        raise DeclarationError(
            f"resource_keys must return a list of claims, not {type(declared).__name__};"
            " write [read('file', path)]"
        )
    claims = tuple(_checked_item(item) for item in islice(declared, MAX_CLAIMS + 1))
    if len(claims) > MAX_CLAIMS:
        raise DeclarationError(f"more than {MAX_CLAIMS:,} claims for one call")
    return claims


def _checked_item(item: object) -> Claim:
    if isinstance(item, Claim):
        if not isinstance(item.mode, str) or not isinstance(item.key, tuple):
            raise DeclarationError(
                f"{item!r} is no claim; make it with read(), write() or commute()"
            )
        return Claim(_key(item.key), item.mode)
    if isinstance(item, tuple):
        return Claim(_key(item), WRITE)
    raise DeclarationError(
        f"resource_keys returned {type(item).__name__!r} where a claim or a key was expected;"
        " write [read('file', path)] or [('db', 'orders')]"
    )


class FileKeys:
    """Turns the paths in `file` keys into absolute, canonical keys, and back for people.

    Symbolic links and `..` are resolved (also where the last parts do not exist yet), names are
    NFC, and case-folded where the root's file system ignores case; so two roots on one table
    agree about which file is meant. Resolving reads the disk; showing does not.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = os.path.realpath(Path.cwd() if root is None else root)
        self._folds = _ignores_case(self.root)
        self._below = self.root.rstrip(os.sep) + os.sep
        self._shown_root = self.key(self.root)

    def key(self, path: str) -> Key:
        """The canonical key of `path`, which is relative to the root unless absolute.

        Raises `ValueError` for what can be no path: too long, or with a NUL in it.
        """
        if len(path) > LONGEST_PATH:
            raise ValueError(f"a path of {len(path):,} characters names no file")
        real = self._real(path)
        if not real.isascii():
            import unicodedata  # only here: few names need it

            real = unicodedata.normalize("NFC", real)
        if self._folds:
            real = real.casefold()
        return (FILE, *filter(None, real.split(os.sep)))  # noqa: PTH206 - hot path

    def _real(self, path: str) -> str:
        """What `os.path.realpath` says, without looking again at the root, which is real."""
        below = path.removeprefix(self._below)
        if below != path:
            path = below.lstrip(os.sep)
        parts = path.split(os.sep)  # noqa: PTH206 - hot path
        if ".." in parts or os.path.isabs(path):  # noqa: PTH117 - hot path
            return os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118 - hot path
        real = self._below[:-1]
        exists = True
        for part in parts:
            if part and part != ".":
                real = f"{real}{os.sep}{part}"
                mode = _mode(real) if exists else 0
                if stat.S_ISLNK(mode):
                    return os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118
                exists = mode > 0
        return real or os.sep

    def resolve(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """The claims with every file key made canonical and one claim left per key."""
        return combine([self._resolved(claim) for claim in claims])

    def _resolved(self, claim: Claim) -> Claim:
        key, mode = claim
        if len(key) < 2 or key[0] != FILE:
            return claim
        path = key[1] if len(key) == 2 else os.path.join(*key[1:])  # noqa: PTH118 - hot path
        return Claim(self.key(path), mode)

    def shown(self, claim: Claim) -> str:
        """The claim for people: `WRITE of file src/a.py`."""
        key = claim.key
        if not key:
            what = "everything"
        elif key[0] == FILE:
            what = f"file {self._shown_path(key)}"
        elif len(key) == 1:
            what = f"every {key[0]}"
        else:
            what = f"{key[0]} {'/'.join(key[1:])}"
        return one_line(f"{claim.mode.upper()} of {what}")

    def _shown_path(self, key: Key) -> str:
        depth = len(self._shown_root)
        if key[:depth] == self._shown_root:
            return "/".join(key[depth:]) or "."
        return str(Path(os.sep, *key[1:]))


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _ignores_case(directory: str) -> bool:
    swapped = directory.swapcase()
    try:
        return swapped != directory and Path(directory).samefile(swapped)
    except OSError:
        return False
