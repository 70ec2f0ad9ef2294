"""Listening sockets of an HTTP server. A launcher may open them first, and hand them on to the server's process."""

from __future__ import annotations

import contextlib
import socket

from service_chassis.address import Address

#: Connections that wait to be accepted; as in nginx.
BACKLOG = 511
#: The kernel's buffers of a connection: by default it gives a slow one megabytes, and they count as ours.
_SEND_BYTES = 64 * 1024
_RECEIVE_BYTES = 32 * 1024


def listen(address: Address) -> list[socket.socket]:
    """Return the listening sockets: one, or for localhost one each on 127.0.0.1 and ::1. Raises OSError if one is in
    use.
    """
    if address.host != "localhost":
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return [_listening(family, address.host, address.port)]
    first = _listening(socket.AF_INET, "127.0.0.1", address.port)
    sockets = [first]
    with contextlib.suppress(OSError):  # no IPv6 on this host
        sockets.append(_listening(socket.AF_INET6, "::1", first.getsockname()[1]))
    return sockets


def inherited(descriptors: str) -> list[socket.socket]:
    """Return the listening sockets with these descriptors, comma-separated, which the process that started this opened.

    Raises:
        ValueError: one is no descriptor of a listening socket.
    """
    sockets: list[socket.socket] = []
    try:
        for text in descriptors.split(","):
            sockets.append(socket.socket(fileno=int(text)))
            if not sockets[-1].getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                raise ValueError
    except (OSError, ValueError):
        for each in sockets:
            each.detach()  # not ours
        raise ValueError(f"{descriptors!r} are no listening sockets that this process has inherited") from None
    for each in sockets:
        each.set_inheritable(False)
    return sockets


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # With the protocol named, asyncio turns off Nagle on accepted connections. Else answers of two writes take 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
