import pytest

from dispatch.errors import ToolError
from dispatch.toolkit.urls import DEPTH_LIMIT, URL_LIMIT, Target


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.com", ("http", "example.com", 80, "/")),
        ("https://example.com/a?b=c#d", ("https", "example.com", 443, "/a?b=c")),
        ("HTTPS://EXAMPLE.com.:8443/A", ("https", "example.com", 8443, "/A")),
        ("http://example.com?b", ("http", "example.com", 80, "/?b")),
        ("http://example.com//x", ("http", "example.com", 80, "//x")),
        ("http://bücher.example/é%20[1]", ("http", "xn--bcher-kva.example", 80, "/%C3%A9%20[1]")),
        ("http://①②⑦.0.0.1/", ("http", "127.0.0.1", 80, "/")),
        ("http://[::1]:8000/", ("http", "::1", 8000, "/")),
        ("http://[0:0::1]/", ("http", "::1", 80, "/")),
        ("http://a_b.example/", ("http", "a_b.example", 80, "/")),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: tuple[str, str, int, str]) -> None:
    """Scheme and host are lower case, the port is always there, and the fragment is gone."""
    assert Target(*expected) == Target.parse(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "must begin with http:// or https://"),
        ("example.com", "must begin with http:// or https://"),
        ("//example.com", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("ftp://example.com", "must begin with http:// or https://"),
        ("http:example.com", "its host is no host name"),
        ("http://", "its host is no host name"),
        ("http:///path", "its host is no host name"),
        ("http://.example.com", "its host is no host name"),
        ("http://a..b", "its host is no host name"),
        ("http://exa$mple.com", "its host is no host name"),
        ("http://[::1%25eth0]/", "its host is no host name"),
        ("http://[::1%eth0]/", "its host is no host name"),
        ("http://" + "a" * 300, "its host is no host name"),
        ("http://" + "é" * 300, "its host is no host name"),
        ("http://example.com:0/", "no server has port 0"),
        ("http://example.com:65536/", "out of range"),
        ("http://example.com:x/", "Port could not be cast"),
        ("http://[::1/", "Invalid IPv6 URL"),
        ("http://example.com/a b", "escape them"),
        (" http://example.com", "escape them"),
        ("http://example.com/\r\nHost: x", "escape them"),
        ("http://good.example\\@bad.example/", "escape them"),
        ("http://example.com/\ud800", "surrogates not allowed"),
        ("http://user@example.com", "user name or password"),
        ("http://user:secret@example.com", "user name or password"),
        ("http://@example.com", "user name or password"),
        ("http://example.com/" + "a" * URL_LIMIT, "is the limit"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_no_plain_url_is_refused(url: str, expected: str) -> None:
    """The refusal says why, and never repeats a password."""
    with pytest.raises(ToolError) as caught:
        Target.parse(url)
    assert expected in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a/b",
        "https://EXAMPLE.COM:443/a/b/?x=1#y",
        "https://example.com./a//b",
        "https://example.com/a/./c/../b",
        "https://example.com/%61/%62",
        "https://example.com/a%2Fb",
        "https://example.com/a/c/%2E%2e/b",
        "https://example.com/../a/b",
    ],
)
def test_all_spellings_of_a_path_are_one_resource(url: str) -> None:
    """Whatever a server may take for the same path has the same key; so has any query."""
    assert ("http", "https://example.com:443", "a", "b") == Target.parse(url).key


def test_a_deep_path_is_claimed_by_its_beginning() -> None:
    """A key does not grow without bound; a shorter one covers more."""
    key = Target.parse("http://h/" + "a/" * 1000).key
    assert ("http", "http://h:80", *["a"] * DEPTH_LIMIT) == key


@pytest.mark.parametrize(
    ("url", "authority", "at"),
    [
        ("http://example.com/a?b", "example.com", "http://192.0.2.1:80/a?b"),
        ("https://example.com", "example.com", "https://192.0.2.1:443/"),
        ("http://example.com:443", "example.com:443", "http://192.0.2.1:443/"),
        ("http://[::1]:1/", "[::1]:1", "http://192.0.2.1:1/"),
    ],
)
def test_only_the_host_is_replaced_by_an_address(url: str, authority: str, at: str) -> None:
    """A connection goes to the address; what the server is told stays the name."""
    target = Target.parse(url)
    assert (authority, at) == (target.authority, target.at("192.0.2.1"))
    assert "http://[2001:db8::1]:" in target.at("2001:db8::1").replace("https", "http")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/c", "http://h/c"),
        ("c?d", "http://h/a/c?d"),
        ("//other/c", "http://other/c"),
        (" https://other:444/ ", "https://other:444/"),
        ("", "http://h/a/b"),
    ],
)
def test_a_redirect_is_relative_to_where_it_came_from(location: str, expected: str) -> None:
    """Locations are resolved as a browser does."""
    assert expected == Target.parse("http://h/a/b").joined(location).url


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://u:p@h/", "http://[::1", "\\\\h"]
)
def test_a_redirect_is_checked_like_a_url(location: str) -> None:
    """The refusal says that it was a redirect, and from where."""
    with pytest.raises(ToolError, match=r"^a redirect from 'http://h/a' is refused: "):
        Target.parse("http://h/a").joined(location)
