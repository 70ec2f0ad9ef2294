"""Ports that are ours before a service listens on them.

A reservation is a bound socket that never listens. The kernel does not assign its port to a process that requests a
free one. A service that binds with SO_REUSEADDR (as asyncio and uvicorn do) gets it. The reservation is held as
long as the services may be restarted, so that they return under the same address. A name like `localhost` is reserved
on each of its addresses (127.0.0.1 and ::1).
"""

from __future__ import annotations

import contextlib
import errno
import socket

from service_chassis.address import Address

__all__ = ["AddressError", "Reservation"]

#: Number of free ports of the first address to try, since each may be in use on another address.
_TRIES = 20


class AddressError(OSError):
    """An address that is not free, not of this machine, or not an address."""


class Reservation:
    """One port on every address of a host. `close` releases it."""

    def __init__(self, host: str, port: int) -> None:
        self._sockets: list[socket.socket] = []
        tries = _TRIES if port == 0 else 1
        while taken := self._take(host, port):
            tries -= 1
            if tries == 0:
                self.close()
                raise AddressError(f"cannot listen at {Address(host, port)}: {taken.strerror}")
        self.address = Address(host, self._sockets[0].getsockname()[1])

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _take(self, host: str, port: int) -> OSError | None:
        self.close()
        for family, address in _addresses(host):
            try:
                bound = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # a kernel without IPv6
            with contextlib.ExitStack() as on_error:
                on_error.callback(bound.close)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    bound.bind((address, port))
                except OSError as error:
                    if error.errno == errno.EADDRNOTAVAIL and self._sockets:
                        continue  # ::1 where IPv6 is switched off
                    return error
                on_error.pop_all()
            self._sockets.append(bound)
            port = bound.getsockname()[1]
        return None


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"cannot listen at {host}: {getattr(error, 'strerror', error)}") from error
    return list(dict.fromkeys((family, str(address[0])) for family, _type, _protocol, _name, address in found))
