"""How many bytes the results of a turn may take in the message that answers it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LEAST = 256
"""Bytes below which a limit leaves hardly anything but markers."""
SHORT = "[…]"


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit in bytes of UTF-8 per result, and for all results of a turn together.

    Results over the limit are cut in the middle, with a marker that tells how much is missing. The
    limit of the turn is shared fairly: short results stay whole, and all that are cut get equally
    much. The whole text remains in the result (`result.content()`). With a `folder` it is written
    there too, to a file that is named by its content, and the marker tells the model which, or
    that it could not be written. Raises `ValueError` for limits below 256 bytes.
    """

    per_result: int | None = 100_000
    per_turn: int | None = 400_000
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        for name in ("per_result", "per_turn"):
            limit = getattr(self, name)
            if limit is not None and limit < LEAST:
                raise ValueError(f"{name} must be at least {LEAST} bytes, or None, not {limit}")

    def shares(self, sizes: Sequence[int]) -> list[int]:
        """Bytes for each result of a turn, given what each would take."""
        wanted = [size if self.per_result is None else min(size, self.per_result) for size in sizes]
        if self.per_turn is None or sum(wanted) <= self.per_turn:
            return wanted
        level = _level(wanted, self.per_turn)
        return [min(size, level) for size in wanted]

    def cut(self, text: str, allowed: int) -> str:
        """The text in so many bytes: its head and tail, and between them how much is missing.

        Where not even that has room, three characters say that there was something.
        """
        encoded = text.encode()
        if len(encoded) <= allowed:
            return text
        where = "" if self.folder is None else f"; {_kept(encoded, Path(self.folder))}"
        room = allowed - len(_marker(len(encoded), len(encoded), where).encode())
        if room < 0:
            return SHORT
        head, tail = encoded[: room - room // 2], encoded[len(encoded) - room // 2 :]
        marker = _marker(len(encoded) - room, len(encoded), where)
        return f"{head.decode(errors='ignore')}{marker}{tail.decode(errors='ignore')}"


def _kept(encoded: bytes, folder: Path) -> str:
    """Write the text to its file, whole or not at all, and say where it is."""
    path = folder / f"{hashlib.sha256(encoded).hexdigest()[:32]}.txt"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
                part.write(encoded)
            Path(part.name).replace(path)
    except OSError as error:
        return f"the whole text could not be kept: {error.strerror}"
    return f"the whole text is in {path}"


def _marker(missing: int, total: int, where: str) -> str:
    return f"\n[… {missing:,} of {total:,} bytes left out{where} …]\n"


def _level(sizes: Sequence[int], total: int) -> int:
    """The height to which results are filled up so that all of them take `total` together."""
    left, ordered = total, sorted(sizes)
    for place, size in enumerate(ordered):
        share = left // (len(ordered) - place)
        if size > share:
            return share
        left -= size
    return ordered[-1]
