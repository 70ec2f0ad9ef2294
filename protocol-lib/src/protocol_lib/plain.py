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
    """Read a token; raise DecodeError where Kafka's PlainSaslServer refuses it before it checks the password."""
    try:
        parts = str(data, "utf-8").split("\0")
    except UnicodeDecodeError as fault:
        raise DecodeError("a PLAIN token that is not UTF-8") from fault
    if len(parts) != _PARTS:
        raise DecodeError(f"a PLAIN token of {len(parts)} parts")
    authorization_id, username, password = parts
    if not username or not password:
        raise DecodeError("a PLAIN token without a user name or a password")
    if authorization_id not in ("", username):
        raise DecodeError("a PLAIN token of one user to act as another")
    return PlainToken(username, password, authorization_id)
