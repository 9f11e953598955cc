from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatch import Image
from dispatch.render import render

KINDS = {
    "image/png": b"\x89PNG\r\n\x1a\nrest",
    "image/jpeg": b"\xff\xd8\xff\xe0rest",
    "image/gif": b"GIF89arest",
    "image/webp": b"RIFF\x04\x00\x00\x00WEBPrest",
}


@pytest.mark.parametrize(("kind", "data"), KINDS.items(), ids=KINDS.keys())
def test_an_image_knows_what_it_is(kind: str, data: bytes, tmp_path: Path) -> None:
    """The first bytes tell the type, also of a file."""
    path = tmp_path / "image"
    path.write_bytes(data)
    assert (
        kind
        == Image(data).media_type
        == Image.read(path).media_type
        == Image.read(str(path)).media_type
    )
    assert data == Image.read(path).data


def test_an_older_gif_is_one_too() -> None:
    """Both versions of the format are read."""
    assert "image/gif" == Image(b"GIF87arest").media_type


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        ((b"BM rest",), ValueError, "say what they are by media_type"),
        ((b"RIFF\x04\x00\x00\x00WAVE",), ValueError, "no PNG, JPEG, GIF or WebP"),
        ((b"",), ValueError, "without bytes"),
        ((b"", "image/png"), ValueError, "without bytes"),
        (("text",), TypeError, "needs bytes, not str"),
    ],
    ids=["bitmap", "sound", "empty", "empty-of-a-type", "text"],
)
def test_what_is_no_image_is_refused(given: Any, error: type[Exception], reason: str) -> None:
    """The tool that makes it fails, and says why, before a provider refuses the whole request."""
    with pytest.raises(error, match=reason):
        Image(*given)


def test_another_type_must_be_said() -> None:
    """What is said is believed."""
    assert "image/bmp" == Image(b"BM rest", "image/bmp").media_type


def test_an_image_is_described_where_none_can_be_shown() -> None:
    """Inside of other values, and in a log, stands what it is and not what is in it."""
    image = Image(KINDS["image/png"] + b" " * 2_000)
    assert "[image/png, 2,012 bytes]" == image.described == render(image)
    assert '{"photo":"[image/png, 2,012 bytes]"}' == render({"photo": image})
    assert "Image(media_type='image/png')" == repr(image)
