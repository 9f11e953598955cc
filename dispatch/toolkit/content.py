"""Opening and replacing the content of one file below a folder.

Knows nothing of tools. Invariants: nothing is followed out of the folder, also not by a link put
in place after the path was checked; a replaced file is the old one or the new one to every reader
at every moment; a replacement that fails or is cancelled leaves no temporary file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.toolkit.paths import Folder

SNIFFED = 8192
"""Bytes at the start of a file in which a null byte makes it binary."""

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@contextlib.contextmanager
def opened(folder: Folder, path: str) -> Iterator[BinaryIO]:
    """Open a text file for reading, in bytes; raises `ToolError` for anything that is none."""
    real = folder.resolve(path)
    if os.path.isdir(real):  # noqa: PTH112 - never raises, unlike pathlib's
        raise ToolError(f"{preview(path)} is a folder, not a file")
    with _refusals("read", path), folder.directory(real.parent) as directory:
        file = open_in(directory, real.name)
    if file is None:
        raise ToolError(f"{preview(path)} is not a regular file")
    with file:
        if b"\0" in file.read(SNIFFED):
            raise ToolError(f"{preview(path)} is a binary file, not text")
        file.seek(0)
        yield file


def open_in(directory: int, name: str) -> BinaryIO | None:
    """Open the regular file `name` of an open directory; None if it is of another kind.

    Raises `OSError`, also if `name` is a link. Never blocks, and opens no pipe or device: that
    alone can wake who writes to a pipe, or change a device.
    """
    found = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if not stat.S_ISREG(found) and not stat.S_ISLNK(found):
        return None
    descriptor = os.open(name, READ_FLAGS, dir_fd=directory)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def replace(
    folder: Folder,
    path: str,
    data: bytes,
    *,
    check: Callable[[], object],
    seen: os.stat_result | None = None,
) -> bool:
    """Give a file new content in one step; return whether it was created.

    Missing folders are made. An existing file keeps its owner and group, where this process may
    give them, and who may read, write and run it; set-user-id, set-group-id and sticky bits are
    dropped. Hard links to it keep the old content.

    `check` is called right before the step and may raise to stop it. With `seen`, the state the
    new content was made from, a file that has changed since is left alone. Raises `ToolError`.
    """
    real = folder.resolve(path)
    if os.path.isdir(real):  # noqa: PTH112 - never raises, unlike pathlib's
        raise ToolError(f"{preview(path)} is a folder, not a file")
    with (
        _refusals("write", path),
        folder.directory(real.parent, make=True) as directory,
    ):
        old = _replaceable(directory, real.name, path)
        with _temporary(directory, data, old) as temporary:
            check()
            if seen is not None:
                _check_unchanged(directory, real.name, path, seen)
            os.replace(temporary, real.name, src_dir_fd=directory, dst_dir_fd=directory)
    return old is None


@contextlib.contextmanager
def _temporary(directory: int, data: bytes, old: os.stat_result | None) -> Iterator[str]:
    name = f".dispatch-{secrets.token_hex(8)}.tmp"
    # A new file's mode is what the umask leaves; an old one's is set before anybody can open it.
    descriptor = os.open(name, WRITE_FLAGS, 0o666 if old is None else 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                os.fchmod(file.fileno(), _give(file.fileno(), old))
            os.fsync(file.fileno())
        yield name
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise


def _give(descriptor: int, old: os.stat_result) -> int:
    """Give a new file the old one's owner and group if that is permitted; return its mode."""
    mode = old.st_mode & 0o777
    with contextlib.suppress(OSError):
        os.fchown(descriptor, -1, old.st_gid)
        os.fchown(descriptor, old.st_uid, -1)
    if os.fstat(descriptor).st_gid != old.st_gid:
        mode &= ~0o070 | (mode & 0o007) << 3  # another group gets no more than everybody has
    return mode


def _replaceable(directory: int, name: str, path: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{preview(path)} is not a regular file")
    if not found.st_mode & 0o222:
        raise ToolError(f"{preview(path)} is read-only; change its mode first if that is meant")
    return found


def _check_unchanged(directory: int, name: str, path: str, seen: os.stat_result) -> None:
    now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (now.st_ino, now.st_mtime_ns, now.st_size) != (seen.st_ino, seen.st_mtime_ns, seen.st_size):
        raise ToolError(
            f"{preview(path)} was changed by something else meanwhile; read it again",
            retryable=True,
        )


@contextlib.contextmanager
def _refusals(verb: str, path: str) -> Iterator[None]:
    """Say what the system refused in the model's terms: its path, and none of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"no file {preview(path)}; list its folder to see what is there") from error
    except OSError as error:
        raise ToolError(f"cannot {verb} {preview(path)}: {error.strerror}") from error
