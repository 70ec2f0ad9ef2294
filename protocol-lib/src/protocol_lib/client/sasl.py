"""Authentication of a client: SASL PLAIN (RFC 4616), SCRAM-SHA-256 and 512 (RFC 5802), OAUTHBEARER (RFC 7628).

A mechanism has the name that SaslHandshake carries, and starts an exchange per connection. An exchange is a generator
that yields the tokens to send and is sent the broker's. If it does not trust the broker's, it raises
AuthenticationError.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol

from protocol_lib.client.errors import AuthenticationError
from protocol_lib.errors import DecodeError
from protocol_lib.oauthbearer import ACKNOWLEDGED, BearerMessage, encode_bearer
from protocol_lib.plain import PlainToken, encode_plain
from protocol_lib.scram import AuthenticationFailed, ScramClient, ScramMechanism

#: Generator that yields tokens for the broker and is sent the broker's.
SaslExchange = Generator[bytes, bytes, None]


class SaslMechanism(Protocol):
    @property
    def name(self) -> str: ...

    def exchange(self) -> SaslExchange: ...


@dataclass(frozen=True, slots=True)
class SaslPlain:
    """The password travels as it is: for use with TLS."""

    username: str
    password: str = field(repr=False)

    @property
    def name(self) -> str:
        return "PLAIN"

    def exchange(self) -> SaslExchange:
        yield encode_plain(PlainToken(self.username, self.password))


@dataclass(frozen=True, slots=True)
class SaslBearer:
    """The token travels as it is: for use with TLS. `token` is called for each connection, as tokens end."""

    token: Callable[[], str] = field(repr=False)

    @property
    def name(self) -> str:
        return "OAUTHBEARER"

    def exchange(self) -> SaslExchange:
        report = yield encode_bearer(BearerMessage(self.token()))
        if report:  # of an error, which the broker then gives a name
            yield ACKNOWLEDGED
            raise AuthenticationError(f"{self.name}: the broker does not accept the token")


@dataclass(frozen=True, slots=True)
class SaslScram:
    """The password never travels, and the broker proves that it knows it too."""

    username: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SHA_512

    @property
    def name(self) -> str:
        return self.mechanism.mechanism_name

    def exchange(self) -> SaslExchange:
        client = ScramClient(self.mechanism, self.username, self.password)
        try:
            challenge = yield client.first()
            signature = yield client.final(challenge)
            client.verify(signature)
        except (AuthenticationFailed, DecodeError) as fault:
            raise AuthenticationError(f"{self.name}: {fault}") from fault
