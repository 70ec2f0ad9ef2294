"""SaslHandshake (17): choose a SASL mechanism.

After version 0 the mechanism's tokens follow as bare frames, an i32 length and the token; after 1 they travel in
SaslAuthenticate. Neither version is flexible, and no newer one can be (KAFKA-9577).
"""

from protocol_lib.schema import Int16, message


@message(api_key=17, versions="0-1", flexible=None)
class SaslHandshakeRequest:
    #: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI or OAUTHBEARER
    mechanism: str


@message(api_key=17, versions="0-1", flexible=None)
class SaslHandshakeResponse:
    error_code: Int16
    #: the broker's mechanisms, also with UNSUPPORTED_SASL_MECHANISM
    mechanisms: tuple[str, ...]
