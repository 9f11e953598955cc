"""A folder that paths of a model cannot leave.

Owns turning a path as the model wrote it into a real one, and opening directories below the root
without following a link. Invariant: whatever `resolve` returns lies in the root, links followed;
and `directory` opens every step with `O_NOFOLLOW`, so a link that is put in place after the
check is refused, never followed. What remains: a hard link or a mount inside the root leads
where it leads, and a directory that is moved away while it is open is written where it went.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dispatch.errors import DeclarationError, ToolError
from dispatch.render import preview

PATH_LIMIT = 4096
"""Bytes: a longer path could be made step by step, and then nobody could open it."""

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Folder:
    """The root of file tools. Raises `DeclarationError` if it is no directory."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.name = os.fspath(root)
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise DeclarationError(f"the root {self.name!r} is not a folder; make it first")

    def resolve(self, path: str) -> Path:
        """Return the real path of `path`, which is relative to the root unless absolute.

        The file need not exist. Raises `ToolError` for a path that leaves the root, through `..`
        or a link, or that is no path at all; the text never tells where such a link leads.
        """
        if len(path) >= PATH_LIMIT:  # before resolving it, which takes time by its square
            raise ToolError(f"{preview(path)} is longer than a path can be")
        try:
            real = os.path.realpath(self.root / path)
        except ValueError:
            raise ToolError(f"{preview(path)} is no path: it has characters no path has") from None
        if not path:
            raise ToolError("the path is empty; '.' is the folder itself")
        if real != str(self.root) and not real.startswith(os.path.join(self.root, "")):  # noqa: PTH118
            raise ToolError(
                f"{preview(path)} leads out of {self.name!r}; only paths inside it can be used"
            )
        if len(os.fsencode(real)) >= PATH_LIMIT:
            raise ToolError(f"{preview(path)} is longer than a path can be")
        return Path(real)

    def shown(self, real: Path) -> str:
        """Return a resolved path for people: relative to the root, with slashes."""
        return real.relative_to(self.root).as_posix()

    def key_path(self, path: str) -> str:
        """Return the absolute path to claim for `path`, whatever the dispatcher's root is.

        Pure and never raises: a path that `resolve` will refuse is claimed as it stands, and one
        that is no path at all stands for the whole folder.
        """
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            return str(self.root)
        no_path = "\0" in path or len(path) >= PATH_LIMIT
        return str(self.root) if no_path else str(self.root / path)

    @contextlib.contextmanager
    def directory(self, real: Path, *, make: bool = False) -> Iterator[int]:
        """Open a resolved directory, from the root down and through no link.

        `make` creates what is missing. Raises `OSError`.
        """
        current = os.open(self.root, DIRECTORY)
        try:
            for part in real.relative_to(self.root).parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                below = os.open(part, DIRECTORY, dir_fd=current)
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)
