"""The messages of SASL OAUTHBEARER (RFC 7628), in the form that Kafka's clients send.

    client → server   n,[a=AUTHORIZATION ID],^Aauth=Bearer TOKEN^A[NAME=VALUE^A …]^A       ^A is the byte 1
    server → client   nothing, or {"status":"invalid_token"}
    client → server   ^A, after which the server ends the exchange

An authorization id escapes "=" and "," as SCRAM's names do. The token is not looked into.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from protocol_lib.errors import DecodeError, EncodeError

#: The answer of a client to the report of an error.
ACKNOWLEDGED: Final = b"\x01"

_SEPARATOR: Final = "\x01"
_NAME: Final = re.compile(r"(?:[^=,\x00]|=2C|=3D)+")
_AUTH: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([-_.~+/a-zA-Z0-9]+=*)")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


@dataclass(frozen=True, slots=True)
class BearerMessage:
    """The first message of a client."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: dict[str, str] = field(default_factory=dict)


def encode_bearer(message: BearerMessage) -> bytes:
    """Write a client's first message; raise EncodeError for text that it cannot carry."""
    escaped = message.authorization_id.replace("=", "=3D").replace(",", "=2C")
    pairs = {"auth": f"Bearer {message.token}", **message.extensions}
    if not _AUTH.fullmatch(pairs["auth"]) or "\0" in escaped:
        raise EncodeError("a token or name that a SASL OAUTHBEARER message cannot carry")
    if any(not _KEY.fullmatch(name) or not _VALUE.fullmatch(value) for name, value in pairs.items()):
        raise EncodeError("an extension that a SASL OAUTHBEARER message cannot carry")
    named = f"a={escaped}" if escaped else ""
    body = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
    try:
        return f"n,{named},{_SEPARATOR}{body}{_SEPARATOR}".encode()
    except UnicodeEncodeError:  # it would show the token
        raise EncodeError("a name that cannot be written in UTF-8") from None


def decode_bearer(data: bytes) -> BearerMessage:
    """Read a client's first message; raise DecodeError if it is none."""
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("an OAUTHBEARER message that is not UTF-8") from None
    header, separator, rest = text.partition(_SEPARATOR)
    flag, _, named = header.partition(",")
    if not separator or flag != "n" or not named.endswith(",") or not rest.endswith(_SEPARATOR):
        raise DecodeError("an OAUTHBEARER message without n,, and its separators")
    authorization_id = named[:-1]
    if authorization_id and not (authorization_id.startswith("a=") and _NAME.fullmatch(authorization_id, 2)):
        raise DecodeError("an OAUTHBEARER message with a malformed authorization id")
    pairs = _pairs(rest[:-1])
    found = _AUTH.fullmatch(pairs.pop("auth", ""))
    if found is None:
        raise DecodeError("an OAUTHBEARER message without a bearer token")
    name = authorization_id[2:].replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(found[1], name, pairs)


def _pairs(text: str) -> dict[str, str]:
    """Split NAME=VALUE pairs, each of which ends with a separator."""
    pairs: dict[str, str] = {}
    if text and not text.endswith(_SEPARATOR):
        raise DecodeError("an OAUTHBEARER message with a pair that does not end")
    for pair in text.split(_SEPARATOR)[:-1]:
        name, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(name) or not _VALUE.fullmatch(value) or name in pairs:
            raise DecodeError("an OAUTHBEARER message with a malformed or repeated pair")
        pairs[name] = value
    return pairs
