"""Where the cluster is, as people write it."""

import pytest
from protocol_lib.client.settings import Address, ClientSettings


@pytest.mark.parametrize(
    ("text", "host", "port", "written"),
    [
        ("localhost:19092", "localhost", 19092, "localhost:19092"),
        ("broker", "broker", 9092, "broker:9092"),
        ("[::1]:9093", "::1", 9093, "[::1]:9093"),
        ("[::1]", "::1", 9092, "[::1]:9092"),
        (" a.b.c:1 ", "a.b.c", 1, "a.b.c:1"),
    ],
)
def test_an_address(text, host, port, written):
    address = Address.parse(text)
    assert (address.host, address.port, str(address)) == (host, port, written)


@pytest.mark.parametrize("text", ["", ":9092", "a:0", "a:65536", "a:b", "a:-1"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="is no host:port"):
        Address.parse(text)


def test_bootstrap_servers_are_a_text_or_a_list():
    wanted = (Address("a", 1), Address("b", 9092))
    assert ClientSettings(bootstrap_servers="a:1, b").addresses == wanted
    assert ClientSettings(bootstrap_servers=["a:1", "b"]).addresses == wanted
    with pytest.raises(ValueError, match="no bootstrap servers"):
        ClientSettings(bootstrap_servers=" , ")


def test_passwords_are_not_shown():
    from protocol_lib.client.sasl import SaslPlain

    settings = ClientSettings(bootstrap_servers="a", sasl=SaslPlain("alice", "secret"))
    assert "secret" not in repr(settings)
    assert "secret" not in repr(settings.sasl)
