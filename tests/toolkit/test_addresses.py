import socket
from typing import Any

import pytest

from dispatch.errors import ToolError
from dispatch.toolkit.addresses import Reach

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "64:ff9b::808:808", "2002:808:808::1"]
PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("100.64.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1", "255.255.255.255", "0.0.0.1"),
    *("::1", "fc00::1", "fd12::1", "fec0::1", "2001:db8::1", "::127.0.0.1", "2001::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1", "64:ff9b:1::1"),
]
CLOSED = [
    *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254"),
    *("224.0.0.1", "239.1.1.1", "ff02::1", "0.0.0.0", "::", "::ffff:0.0.0.0"),  # noqa: S104 - refused
    *("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"),
]


@pytest.mark.parametrize("address", [*PUBLIC, *PRIVATE, *CLOSED])
def test_which_addresses_can_be_reached(address: str) -> None:
    """By default public ones; `allow_private` adds private ones, a named host all of its own."""
    by_default = Reach()
    opened = Reach(allow_private=True)
    named = Reach(["Intranet.Example"])
    assert (address in PUBLIC) == by_default.allows("host", address)
    assert (address not in CLOSED) == opened.allows("host", address)
    assert (address in PUBLIC) == named.allows("host", address)
    assert named.allows("intranet.example", address)


def answers(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name resolve to these addresses; returns the list of names asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


async def test_a_name_with_public_addresses_is_resolved_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order is that of the system, and each address comes once."""
    answers(monkeypatch, PUBLIC[1], PUBLIC[0], PUBLIC[1])
    assert [PUBLIC[1], PUBLIC[0]] == await Reach().addresses("example.com", 80)


async def test_one_private_address_closes_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is at a public and at a private address is refused, and neither is told."""
    answers(monkeypatch, PUBLIC[0], "10.0.0.1")
    with pytest.raises(ToolError) as caught:
        await Reach().addresses("example.com", 80)
    expected = "host 'example.com' is not at a public address, and only those can be fetched"
    assert expected == str(caught.value)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "::1",
        "0",
        "0.0.0.0",  # noqa: S104 - refused
    ],
)
async def test_this_machine_is_refused_by_any_name(host: str) -> None:
    """It is the address that decides, however it is written."""
    with pytest.raises(ToolError, match="is not at a public address"):
        await Reach(["127.0.0.2"]).addresses(host, 80)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), False),
        (socket.gaierror(socket.EAI_AGAIN, "later"), True),
        (UnicodeError("label too long"), False),
    ],
    ids=["unknown", "later", "no name"],
)
async def test_a_name_that_cannot_be_resolved_says_so(
    monkeypatch: pytest.MonkeyPatch, error: Exception, retryable: bool
) -> None:
    """Only a resolver that could not answer is worth asking again."""

    def getaddrinfo(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(ToolError) as caught:
        await Reach().addresses("nothing.example", 80)
    expected = ("no address for host 'nothing.example'", retryable)
    assert expected == (str(caught.value), caught.value.retryable)
