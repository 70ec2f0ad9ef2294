"""Tokens of SASL PLAIN."""

import pytest
from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.plain import PlainToken, decode_plain, encode_plain


def test_there_and_back():
    token = PlainToken("alice", "größe, =secret")
    assert encode_plain(token) == "\0alice\0größe, =secret".encode()
    assert decode_plain(encode_plain(token)) == token
    assert decode_plain(b"alice\0alice\0s") == PlainToken("alice", "s", "alice")
    assert "secret" not in repr(token)


@pytest.mark.parametrize(
    "token", [b"", b"alice", b"\0alice", b"\0alice\0s\0", b"\0\0s", b"\0alice\0", b"bob\0alice\0s", b"\0\xff\0s"]
)
def test_what_is_refused(token):
    with pytest.raises(DecodeError):
        decode_plain(token)


def test_what_cannot_be_said():
    with pytest.raises(EncodeError):
        encode_plain(PlainToken("al\0ice", "s"))
