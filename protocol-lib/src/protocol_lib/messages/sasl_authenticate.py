"""SaslAuthenticate (36): one token of a SASL exchange, after SaslHandshake version 1.

1 answers with the lifetime of the session (KIP-368), 2 is flexible.
"""

from protocol_lib.schema import Bytes, Int16, Int64, message, wire


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes = wire(secret=True)


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16
    error_message: str | None
    auth_bytes: Bytes = wire(secret=True)
    #: time after which the client must authenticate again; 0 for never
    session_lifetime_ms: Int64 = wire("1+", default=0)
