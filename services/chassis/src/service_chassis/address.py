"""Addresses as settings write them.

host:port               localhost:9092, 10.0.0.7:29092, [::1]:9092, :9102 (every interface)
NAME://host:port,...    listeners: EXTERNAL://localhost:9092,INTERNAL://0.0.0.0:29092
unix:/path              a Unix socket (gRPC only); kept as text, see `is_unix`
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

#: Longest host name DNS allows (RFC 1035, 2.3.4).
_HOST_LENGTH_MAX = 255
_LISTENER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9._%:-]*")


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP host and port; an empty host means every interface, port 0 a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """A named address, as in Kafka's `listeners` setting."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse(text: str) -> Address:
    """Return the address in `host:port`, where an IPv6 host stands in brackets.

    Raises ValueError with a message for the operator.
    """
    host, colon, port_text = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, [::1]:9092")
    if len(host) > _HOST_LENGTH_MAX or not _HOST.fullmatch(host):
        raise ValueError(f"{text!r}: not a host name or address")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text[:6]) > 65535:
        raise ValueError(f"{text!r}: the port must be a number from 0 to 65535")
    return Address(host, int(port_text))


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Return the listeners in `NAME://host:port,…`, in the order written.

    Names are unique and compared without case, as in Kafka.
    """
    listeners: list[Listener] = []
    for item in text.split(","):
        name, separator, address_text = item.strip().partition("://")
        if not separator:
            raise ValueError(f"{item.strip()!r} is not NAME://host:port")
        if not _LISTENER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a listener name (letters, digits and _, a letter first)")
        if any(listener.name == name.upper() for listener in listeners):
            raise ValueError(f"the listener {name.upper()} is named twice")
        listeners.append(Listener(name.upper(), parse(address_text)))
    return tuple(listeners)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the host; a name other than localhost may be anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_unix(text: str) -> bool:
    """Return whether a gRPC address names a Unix socket."""
    return text.startswith("unix:")
