import os
import socket

import pytest
from service_chassis.address import Address
from service_chassis.listeners import inherited, listen


def test_sockets_are_handed_on_and_those_on_both_addresses_of_localhost():
    opened = listen(Address("localhost", 0))
    taken = inherited(",".join(str(each.detach()) for each in opened))
    assert [each.getsockname()[0] for each in taken] == ["127.0.0.1", "::1"][: len(taken)]
    for each in taken:
        with each, socket.create_connection(each.getsockname()[:2], timeout=10) as client:
            assert each.accept()[1][:2] == client.getsockname()[:2]


@pytest.mark.parametrize("text", ["x", "", "-1", "1048575", "{pipe}", "{unconnected}", "{listening},{pipe}"])
def test_what_is_no_listening_socket_is_refused_and_left_alone(text):
    reading, writing = os.pipe()
    (listening,) = listen(Address("127.0.0.1", 0))
    with open(reading, "rb"), open(writing, "wb"), socket.socket() as unconnected, listening:
        numbers = {"pipe": reading, "unconnected": unconnected.fileno(), "listening": listening.fileno()}
        with pytest.raises(ValueError, match="are no listening sockets that this process has inherited"):
            inherited(text.format(**numbers))
        assert all(os.fstat(number) for number in numbers.values())
