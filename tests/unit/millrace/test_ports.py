import socket

import pytest
from millrace.ports import AddressError, Reservation


def _listen(family, address, port):
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, port))
    listening.listen()
    return listening


def test_free_port_is_held_for_who_reuses_addresses():
    with Reservation("127.0.0.1", 0) as reservation:
        port = reservation.address.port
        for _ in range(2):  # a service may be restarted
            with _listen(socket.AF_INET, "127.0.0.1", port):
                socket.create_connection(("127.0.0.1", port), timeout=2).close()
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))


def test_a_reserved_port_is_nobody_elses_free_port():
    with Reservation("127.0.0.1", 0) as first, Reservation("127.0.0.1", 0) as second:
        assert first.address.port != second.address.port


def test_localhost_is_reserved_on_both_families():
    with Reservation("localhost", 0) as reservation:
        assert reservation.address.host == "localhost"
        with _listen(socket.AF_INET, "127.0.0.1", reservation.address.port):
            pass
        if socket.has_ipv6:
            with socket.socket(socket.AF_INET6) as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(("::1", reservation.address.port))


def test_a_port_somebody_listens_on_is_refused():
    with _listen(socket.AF_INET, "127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(AddressError, match=f"cannot listen at localhost:{port}: Address already in use"):
            Reservation("localhost", port)


@pytest.mark.parametrize("host", ["nosuch.invalid", "a" * 300, "192.0.2.1"])
def test_an_address_that_is_not_ours_is_refused(host):
    with pytest.raises(AddressError, match=f"cannot listen at {host}"):
        Reservation(host, 0)
