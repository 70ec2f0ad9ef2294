"""The question of the launcher whether a service is ready. Imports almost nothing."""

from __future__ import annotations

import contextlib
import socket

from service_chassis import address as addresses

_ANSWER_BYTES_MAX = 65536
#: The address of a service that listens on every interface.
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def check(address: str, path: str = "/readyz", timeout_s: float = 5.0) -> str | None:
    """Ask a service's endpoint; return None if it answers 200, else the fault."""
    target = addresses.parse(address)
    try:
        with contextlib.closing(_connected(target, timeout_s)) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {target}\r\n\r\n".encode())
            answer = b""
            while len(answer) < _ANSWER_BYTES_MAX and (part := connection.recv(_ANSWER_BYTES_MAX)):
                answer += part
    except OSError as error:
        return f"{target}: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status == [b"200"]:
        return None
    status_line = b"".join(status).decode("latin-1") or "nothing"
    return f"{target}{path} answered {status_line}: {body.decode('latin-1').strip()}"


def listens(address: str, timeout_s: float = 5.0) -> bool:
    """Return whether a service's endpoint listens, ready or not."""
    try:
        _connected(addresses.parse(address), timeout_s).close()
    except OSError:
        return False
    return True


def _connected(target: addresses.Address, timeout_s: float) -> socket.socket:
    return socket.create_connection((_LOOPBACK.get(target.host, target.host), target.port), timeout_s)
