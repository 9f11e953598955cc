import gzip
import zlib

import pytest

from dispatch.toolkit.responses import Body, report


def shown(
    data: bytes, content_type: str = "text/plain", *, limit: int = 100, packed: str = ""
) -> str:
    body = Body(limit, packed)
    for n in range(0, len(data), 7):
        if not body.is_full:
            body.take(data[n : n + 7])
    return body.text(content_type)


@pytest.mark.parametrize(
    ("data", "content_type", "expected"),
    [
        (b"plain", "", "plain"),
        ("é".encode(), "text/html; charset=utf-8", "é"),
        ("é".encode("latin-1"), 'text/html; charset="ISO-8859-1"', "é"),
        ("é".encode("utf-16"), "text/plain; charset=utf-16", "é"),
        ("語".encode("shift_jis"), "text/plain;charset=Shift_JIS", "語"),
        ("é".encode("latin-1"), "text/plain", "\ufffd"),
        ("é".encode(), "text/plain; charset=nonsense", "é"),
        ("é".encode(), "text/plain; charset=punycode", "é"),
        ("é".encode(), "text/plain; charset=unicode_escape", "é"),
        ("é".encode(), "text/plain; charset=zip", "é"),
        (b"PNG\0\0", "image/png", "[5 bytes that are no text are not shown]"),
        (b"PNG\0" * 100, "image/png", "[more than 100 bytes that are no text are not shown]"),
        (b"", "text/plain", ""),
    ],
)
def test_a_body_is_text_or_is_named(data: bytes, content_type: str, expected: str) -> None:
    """The charset is the response's where that is a harmless one, else UTF-8."""
    assert expected == shown(data, content_type)


def test_a_long_body_is_cut_between_characters() -> None:
    """Exactly as much as can be shown is not cut; one byte more is, and is said."""
    assert "é" * 50 == shown("é".encode() * 50)
    note = "\n[only the first 100 bytes are shown; ask for more with max_bytes]"
    assert "é" * 50 + note == shown("é".encode() * 50 + b"x")
    assert "x" + "é" * 49 + note == shown(b"x" + "é".encode() * 50)


@pytest.mark.parametrize(
    ("packed", "pack"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("Deflate", zlib.compress)],
)
def test_a_packed_body_is_unpacked_as_far_as_it_is_shown(packed: str, pack: object) -> None:
    """A small response that unpacks to gigabytes costs no more than what is shown of it."""
    assert callable(pack)
    assert "some text" == shown(pack(b"some text"), packed=packed)
    body = Body(100, packed)
    body.take(pack(b"x" * 10_000_000))
    assert body.is_full
    assert 101 == len(body._data)


@pytest.mark.parametrize(
    ("packed", "data"), [("br", b"x"), ("gzip", b"no gzip at all"), ("zstd", b"")]
)
def test_what_cannot_be_unpacked_is_not_shown(packed: str, data: bytes) -> None:
    """An unknown or broken packing is said, and no more of the body is read."""
    assert "[the body is packed in a way that cannot be shown]" == shown(data, packed=packed)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, "HTTP 200 OK"),
        (400, "HTTP 400 Bad Request [the request failed]"),
        (404, "HTTP 404 Not Found [the request failed]"),
        (503, "HTTP 503 Service Unavailable [the request failed]"),
        (299, "HTTP 299"),
        (999, "HTTP 999 [the request failed]"),
    ],
)
def test_a_failed_request_is_marked(status: int, expected: str) -> None:
    """The first line has the status; the server's own wording is not repeated."""
    assert expected == report(status, {}, "", moved_to=None)


def test_selected_headers_stand_before_the_body() -> None:
    """Other headers are left out, and a long or odd one stays on its line."""
    headers = {"content-type": "text/plain", "set-cookie": "secret", "etag": "a\x85" + "b" * 600}
    lines = report(200, headers, "body", moved_to="http://h/").split("\n")
    expected = ["HTTP 200 OK", "redirected to http://h/", "content-type: text/plain"]
    assert [*expected, "etag: a\\x85" + "b" * 498 + "…", "", "body"] == lines
