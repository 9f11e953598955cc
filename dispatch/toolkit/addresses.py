"""Which addresses a model may reach: by default those of the public internet only.

The arguments of a call come from a model, which may have been told by a stranger what to fetch;
an address that only this machine can reach is not for strangers. Invariants: it is the address
that decides, never the name; IPv4 addresses inside of IPv6 ones are looked at too; unless all
addresses of a name are allowed, none is; and the text tells nothing of what a name resolved to.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from functools import partial
from ipaddress import IPv4Address, IPv6Address

from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.runtime.threads import WorkerPool, run_apart

ADDRESS_LIMIT = 8
THREADS = WorkerPool("dispatch-fetch")
"""Of our own: other code may fill the event loop's, or close them."""
GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
    )
)
"""Where clouds tell a machine its credentials; most do at 169.254.169.254, which is link-local."""


class Reach:
    """Which addresses may be connected to.

    Args:
        private_hosts: Host names and addresses, as they stand in a URL, that may be at any
            address.
        allow_private: Whether every host may be at a loopback or private address. Link-local
            and multicast addresses and those of cloud metadata stay closed.
    """

    def __init__(self, private_hosts: Iterable[str] = (), *, allow_private: bool = False) -> None:
        self._hosts = frozenset(
            host.lower().strip("[]").removesuffix(".") for host in private_hosts
        )
        self._allow_private = allow_private

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host to at most `ADDRESS_LIMIT` addresses, all allowed. Raises `ToolError`."""
        try:
            found = await run_apart(
                THREADS, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            )
        except (OSError, UnicodeError) as error:
            again = getattr(error, "errno", None) == socket.EAI_AGAIN
            raise ToolError(f"no address for host {preview(host)}", retryable=again) from error
        addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
        if not all(self.allows(host, address) for address in addresses):
            raise ToolError(
                f"host {preview(host)} is not at a public address, and only those can be fetched"
            )
        return addresses[:ADDRESS_LIMIT]

    def allows(self, host: str, address: str) -> bool:
        """Tell whether this host may be connected to at this address."""
        if host in self._hosts:
            return True
        plain = _plain(ipaddress.ip_address(address))
        if plain in METADATA or plain.is_link_local or plain.is_multicast or plain.is_unspecified:
            return False
        return self._allow_private or _is_public(plain)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return address.is_global
