"""The messages of SASL OAUTHBEARER: the RFC's form, and Kafka's own reader and writer on the other side."""

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.oauthbearer import BearerMessage, decode_bearer, encode_bearer

JAVA = "org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse"
TOKENS = st.text(string.ascii_letters + string.digits + "-_.~+/", min_size=1)
NAMES = st.text(st.characters(exclude_characters="\0\x01", exclude_categories=("Cs",)))
EXTENSIONS = st.dictionaries(
    st.text(string.ascii_letters, min_size=1).filter(lambda name: name != "auth"),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E)),
    max_size=3,
)


def test_the_form():
    assert encode_bearer(BearerMessage("a.b-c")) == b"n,,\x01auth=Bearer a.b-c\x01\x01"
    message = BearerMessage("a.b", "a,b=c", {"traceId": "7"})
    assert encode_bearer(message) == b"n,a=a=2Cb=3Dc,\x01auth=Bearer a.b\x01traceId=7\x01\x01"
    assert decode_bearer(b"n,,\x01auth=bEARER  a.b==\x01\x01") == BearerMessage("a.b==")
    assert "a.b" not in repr(message)


@given(TOKENS, NAMES, EXTENSIONS)
def test_there_and_back(token, name, extensions):
    message = BearerMessage(token, name, extensions)
    assert decode_bearer(encode_bearer(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a\x01\x01",
        b"n,,auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"n,,\x01auth=Bearer a",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01key\x01\x01",
        b"n,,\x01auth=Bearer a\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer a\x01k=\x7f\x01\x01",
        b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,b=c,\x01auth=Bearer a\x01\x01",
        b"n,a=b=c,\x01auth=Bearer a\x01\x01",
        b"n,a=b,c,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_what_is_refused(data):
    with pytest.raises(DecodeError):
        decode_bearer(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(DecodeError):
        decode_bearer(data)


@pytest.mark.parametrize(
    "message",
    [BearerMessage(""), BearerMessage("a b"), BearerMessage("a\x01"), BearerMessage("a", "\0"),
     BearerMessage("a", "\ud800"), BearerMessage("a", "", {"k": "\x01"}), BearerMessage("a", "", {"": "v"})],
    ids=ascii,
)  # fmt: skip
def test_what_cannot_be_written(message):
    with pytest.raises(EncodeError):
        encode_bearer(message)


def test_kafka_reads_and_writes_the_same(kafka_classes):
    theirs = kafka_classes.named(JAVA)
    extensions = kafka_classes.named("org.apache.kafka.common.security.auth.SaslExtensions")
    for message in (
        BearerMessage("a.b-c_9"),
        BearerMessage("x", "größe,=", {}),
        BearerMessage("x", "", {"traceId": "7"}),
    ):
        own = encode_bearer(message)
        if message.authorization_id.isascii():  # Kafka's names are ASCII
            read = theirs(own)
            assert (read.tokenValue(), read.authorizationId()) == (message.token, message.authorization_id)
        made = kafka_classes.jvm.java.util.HashMap()
        for name, value in message.extensions.items():
            made.put(name, value)
        if not message.authorization_id:
            assert decode_bearer(bytes(theirs(message.token, extensions(made)).toBytes())) == message
