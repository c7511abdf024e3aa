"""The hosts that webhooks and mails of actions may reach: those with public addresses, or those of a list of names and
networks; checked for the address that is then connected to.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.runtime.delivery.actions.channel import Undelivered

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
"""Global unicast addresses (RFC 4291); outside of it are `::127.0.0.1`, `64:ff9b::127.0.0.1` (NAT64), `fec0::` and multicast."""
_FORMS_OF_V4: Final = (ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("2001::/32"))
"""6to4 and Teredo: relays send to the IPv4 address inside."""


@dataclass(frozen=True, slots=True)
class Receivers:
    """Hosts that may be reached: of these names (`*` is any text) or networks; without both, all with public addresses."""

    names: tuple[str, ...] = ()
    networks: tuple[_Network, ...] = ()

    @staticmethod
    def of(allowed: Sequence[str]) -> Receivers:
        """From names such as `*.example.org` and networks such as `10.0.0.0/8`.

        Raises `UserError` for a text that is neither.
        """
        names, networks = [], []
        for text in allowed:
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError:
                if not text or "/" in text or ":" in text:
                    raise UserError(
                        f"'{text}' is neither a host nor a network",
                        remedy="Name hosts as '*.example.org', networks as '10.0.0.0/8'.",
                    ) from None
                names.append(text.lower())
        return Receivers(tuple(names), tuple(networks))

    def address(self, host: str, port: int) -> str:
        """The address to connect to. Resolves the name: may take long.

        Raises `Undelivered` for a host that may not be reached, and for one without an address.
        """
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Undelivered(f"{host} has no address: {error.strerror or error}") from None
        addresses = [str(entry[4][0]) for entry in entries]
        for address in addresses:
            if self.admits(host, address):
                return address
        raise Undelivered(f"{refusal(host)}: its address is {addresses[0]}", lasting=True)

    def admits(self, host: str, address: str) -> bool:
        """Whether a host may be reached at an address."""
        if any(fnmatchcase(host.lower(), name) for name in self.names):
            return True
        actual = _unmapped(ipaddress.ip_address(address.partition("%")[0]))
        if self.names or self.networks:
            return any(actual in network for network in self.networks)
        return is_public(actual)

    def require(self, host: str) -> None:
        """Refuse now, without resolving it, a host that may not be reached at any address.

        Raises `UserError`.
        """
        try:
            admitted = self.admits(host, str(ipaddress.ip_address(host)))
        except ValueError:
            by_name = any(fnmatchcase(host.lower(), name) for name in self.names)
            admitted = by_name or bool(self.networks) or not self.names
            if host.lower() == "localhost" and not (by_name or self.networks):
                admitted = False
        if not admitted:
            raise UserError(refusal(host), remedy="headrace serve --allow-call names the hosts of actions.")


def is_public(address: _Address) -> bool:
    """Whether an address is one of the public network, and is no other form of one that is not."""
    if isinstance(address, ipaddress.IPv6Address):
        return (
            address in _PUBLIC_V6 and address.is_global and not any(address in form for form in _FORMS_OF_V4)
        )
    return address.is_global and not (address.is_multicast or address.is_reserved)


def refusal(host: str) -> str:
    """The sentence on a host that may not be reached."""
    return f"actions of this hub may not reach {host}"


def _unmapped(address: _Address) -> _Address:
    """The IPv4 address that is written as an IPv6 one."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
