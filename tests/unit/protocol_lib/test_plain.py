"""Tokens of SASL PLAIN."""

import pytest
from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.plain import PlainToken, decode_plain, encode_plain


def test_there_and_back():
    token = PlainToken("alice", "größe, =secret")
    assert encode_plain(token) == "\0alice\0größe, =secret".encode()
    assert decode_plain(encode_plain(token)) == token
    assert decode_plain(b"alice\0alice\0s") == PlainToken("alice", "s", "alice")
    assert decode_plain(b"bob\0alice\0s") == PlainToken("alice", "s", "bob"), (
        "the caller refuses it, after the password"
    )
    assert "secret" not in repr(token)


@pytest.mark.parametrize("token", [b"", b"alice", b"\0alice", b"\0alice\0s\0", b"\0\0s", b"\0alice\0", b"\0\xff\0s"])
def test_what_is_refused(token):
    with pytest.raises(DecodeError) as refused:
        decode_plain(token)
    assert refused.value.__cause__ is None  # a UnicodeDecodeError has the password in it


@pytest.mark.parametrize(
    "token", [PlainToken("al\0ice", "s"), PlainToken("alice", "s\ud800"), PlainToken("\udfff", "s")], ids=ascii
)
def test_what_cannot_be_said(token):
    with pytest.raises(EncodeError) as refused:
        encode_plain(token)
    assert refused.value.__cause__ is None  # a UnicodeEncodeError has the password in it
