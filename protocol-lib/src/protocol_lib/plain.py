"""The token of SASL PLAIN (RFC 4616): authorization id (may be empty), NUL, user name, NUL, password, in UTF-8."""

from dataclasses import dataclass, field

from protocol_lib.errors import DecodeError, EncodeError

_PARTS = 3


@dataclass(frozen=True, slots=True)
class PlainToken:
    username: str
    password: str = field(repr=False)
    authorization_id: str = ""


def encode_plain(token: PlainToken) -> bytes:
    """Write a token; raise EncodeError for text that it cannot carry: a NUL, or no UTF-8."""
    parts = (token.authorization_id, token.username, token.password)
    if any("\0" in part for part in parts):
        raise EncodeError("a name or password with a NUL")
    try:
        return "\0".join(parts).encode()
    except UnicodeEncodeError:  # it would show the password, so it is no cause either
        raise EncodeError("a name or password that cannot be written in UTF-8") from None


def decode_plain(data: bytes) -> PlainToken:
    """Read a token; raise DecodeError, with the words for its client, where Kafka refuses it before the password.

    The authorization id is checked after the password, by the caller.
    """
    try:
        parts = str(data, "utf-8").split("\0")
    except UnicodeDecodeError:
        raise DecodeError("Invalid SASL/PLAIN response: not UTF-8") from None
    if len(parts) != _PARTS:
        raise DecodeError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, username, password = parts
    if not username:
        raise DecodeError("Authentication failed: username not specified")
    if not password:
        raise DecodeError("Authentication failed: password not specified")
    return PlainToken(username, password, authorization_id)
