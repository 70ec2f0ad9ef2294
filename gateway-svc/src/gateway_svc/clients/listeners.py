"""The Kafka ports: the sockets of a listener, and the address that clients use for it.

`localhost` is served on 127.0.0.1 and ::1 at the same port, because clients resolve it to either; port 0 means a port
that is free on both. An empty host is every interface, over IPv6 and IPv4, or over IPv4 alone on a host without IPv6.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from service_chassis.address import Address, Listener, parse_listeners

from gateway_svc.settings import GatewaySettings

#: Tries to find a port that is free on both addresses.
_PORT_TRIES = 20


def bind(listener: Listener, *, reuse_port: bool) -> list[socket.socket]:
    """Return the listener's sockets, bound but not listening.

    Raises:
        OSError: an address cannot be bound.
    """
    hosts = _hosts(listener.address.host)
    for attempt in range(_PORT_TRIES):
        sockets: list[socket.socket] = []
        port = listener.address.port
        try:
            for host in hosts:
                bound = _bind(host, port, reuse_port)
                if bound is not None:
                    sockets.append(bound)
                    port = bound.getsockname()[1]
        except OSError as error:
            for each in sockets:
                each.close()
            if listener.address.port or error.errno != errno.EADDRINUSE or attempt == _PORT_TRIES - 1:
                raise OSError(error.errno, f"cannot listen at {listener}: {error.strerror}") from error
            continue
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen at {listener}: no such address on this host")
        return sockets
    raise AssertionError("unreachable")


def _hosts(host: str) -> Sequence[str]:
    if host == "localhost":
        return ("127.0.0.1", "::1")
    if not host:
        return ("::",) if _has_ipv6() else ("0.0.0.0",)
    return (host,)


def _has_ipv6() -> bool:
    """Return whether the kernel makes sockets for IPv6."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _bind(host: str, port: int, reuse_port: bool) -> socket.socket | None:
    """Return a bound socket, or None for ::1 on a host without IPv6, which serves localhost on 127.0.0.1 alone."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = infos[0]
    try:
        bound = socket.socket(family, kind, protocol)
    except OSError:
        if host == "::1":
            return None
        raise
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        bound.bind(address)
    except OSError as error:
        bound.close()
        if host == "::1" and error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    return bound


def advertised(settings: GatewaySettings, bound: Sequence[Listener]) -> tuple[Listener, ...]:
    """Return the address of each listener in Metadata.

    It is the setting's, or that to which the listener is bound, where a wildcard becomes the host's name.
    """
    chosen = {each.name: each.address for each in parse_listeners(settings.advertised_listeners or settings.listeners)}
    listeners = []
    for listener in bound:
        address = chosen[listener.name]
        host = address.host if address.host not in ("", "0.0.0.0", "::") else socket.gethostname()
        listeners.append(Listener(listener.name, Address(host, address.port or listener.address.port)))
    return tuple(listeners)
