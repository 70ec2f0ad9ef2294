"""An empty host is served without IPv6 as well."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
from gateway_svc.clients import listeners
from service_chassis.address import parse_listeners


def test_an_empty_host_is_every_interface() -> None:
    (listener,) = parse_listeners("EXTERNAL://:0")
    (bound,) = listeners.bind(listener, reuse_port=False)
    with bound:
        bound.listen(1)
        socket.create_connection(("127.0.0.1", bound.getsockname()[1])).close()


def test_an_empty_host_is_every_ipv4_interface_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    made = socket.socket

    def without_ipv6(family: int = -1, *arguments: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return made(family, *arguments, **options)

    monkeypatch.setattr(listeners.socket, "socket", without_ipv6)
    (listener,) = parse_listeners("EXTERNAL://:0")
    (bound,) = listeners.bind(listener, reuse_port=False)
    with bound:
        assert (bound.family, bound.getsockname()[0]) == (socket.AF_INET, "0.0.0.0")
