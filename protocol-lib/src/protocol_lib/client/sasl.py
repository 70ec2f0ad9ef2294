"""How a client says who it is: SASL PLAIN (RFC 4616), and SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802).

A mechanism has the name that SaslHandshake carries and starts an exchange per connection: a generator that yields the
tokens to send and is sent the broker's; one that does not trust the broker's raises AuthenticationError.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol

#: Yields what to send, is sent what came back.
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
        yield f"\0{self.username}\0{self.password}".encode()
