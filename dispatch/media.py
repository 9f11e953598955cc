"""What a tool may return that is no text: an image, shown to the model as its provider does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The kinds of image that all providers take."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as a tool's value, alone or in a list together with text.

    `media_type` is told from the first bytes for PNG, JPEG, GIF and WebP, which all providers take;
    an image of another type is only described. Raises `ValueError` if it is neither given nor told
    so, and for no bytes.
    """

    data: bytes = field(repr=False)
    media_type: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            raise TypeError(f"an image needs bytes, not {type(self.data).__name__}")
        if not self.data:
            raise ValueError("an image without bytes cannot be shown")
        if not self.media_type:
            object.__setattr__(self, "media_type", _told(self.data))

    @classmethod
    def read(cls, path: str | Path) -> Image:
        """Read it from a file."""
        return cls(Path(path).read_bytes())

    @property
    def described(self) -> str:
        """A text in its place, where no image can be shown."""
        return f"[{self.media_type}, {len(self.data):,} bytes]"


def _told(data: bytes) -> str:
    for start, media_type in _SIGNATURES.items():
        if data.startswith(start):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError("these bytes are no PNG, JPEG, GIF or WebP; say what they are by media_type")
