"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides, without channel binding and without I/O.

    client                                              server
    ScramClient.first()   n,,n=user,r=CLIENT        ->  ScramServer.receive_first()   returns the client's name
    .final(token)     <-  r=CLIENT+SERVER,s=SALT,i=N    .challenge(credential)
                          c=biws,r=CLIENT+SERVER,p=PROOF  ->  .receive_final(token)
    .verify(token)    <-  v=SIGNATURE                   the token it returned

The server keeps no password: it stores a `ScramCredential`. A name or password is its UTF-8, as in Kafka. Kafka does
not prepare strings (RFC 4013) either: two sides of which one did would not agree on names outside ASCII. A name or
password without UTF-8 (a lone surrogate) raises EncodeError at once.

Stricter than Kafka: the channel binding must be the header that the first message had. A first message with the
reserved attribute `m` is refused. Signatures are over the text that was received, with any extensions it has.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from protocol_lib.errors import DecodeError, EncodeError, ProtocolError

#: Kafka's bounds for stored iterations (ScramMechanism); below the least, neither side goes on.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
#: The most iterations that a client computes: a quarter of a second. RFC 5802 names no bound, nor does Kafka.
CLIENT_ITERATIONS_MAX: Final = 1_000_000

_NONCE_BYTES: Final = 24
_SALT_BYTES: Final = 16


class AuthenticationFailed(ProtocolError):  # noqa: N818 (Kafka's own term)
    """The other side did not prove its identity, or does not go on; nothing is wrong with the bytes."""


class ScramMechanism(Enum):
    """A mechanism by its number in SCRAM credentials' APIs."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The mechanism's name in SaslHandshake."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def hash_name(self) -> str:
        return self.name.replace("_", "").lower()

    @property
    def hash_size(self) -> int:
        return hashlib.new(self.hash_name).digest_size

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.hash_name, _utf8(password), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The data that a server keeps of a user, for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Return the credential for a password that was salted elsewhere, as AlterUserScramCredentials carries it."""
        client_key = mechanism.hmac(salted_password, b"Client Key")
        server_key = mechanism.hmac(salted_password, b"Server Key")
        return cls(salt, iterations, mechanism.hash(client_key), server_key)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, *, salt: bytes = b"", iterations: int = ITERATIONS_MIN
    ) -> "ScramCredential":
        """Return the credential for a password, with a random salt by default."""
        salt = salt or secrets.token_bytes(_SALT_BYTES)
        return cls.of_salted_password(
            mechanism, mechanism.salted_password(password, salt, iterations), salt, iterations
        )

    def fits(self, mechanism: ScramMechanism, password: str) -> bool:
        """Return whether this is the password's credential, which takes 1 to 4 ms to compute."""
        made = self.of_password(mechanism, password, salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client."""

    username: str
    nonce: str
    #: the name to act as; empty for one's own
    authorization_id: str
    #: `tokenauth` is true for a delegation token (KIP-48)
    extensions: dict[str, str]
    gs2_header: str
    #: the message without that header, as it was received
    bare: str

    @property
    def is_token(self) -> bool:
        return self.extensions.get("tokenauth") == "true"


def read_client_first(token: bytes) -> ClientFirst:
    text = _text(token)
    flag, _, rest = text.partition(",")
    authorization, comma, bare = rest.partition(",")
    # mutant: scram-header
    if flag not in ("n", "y") or not comma or not (authorization == "" or authorization.startswith("a=")):
        raise DecodeError("a SCRAM message that does not open with n,, (channel binding is not supported)")
    fields = _fields(bare)
    if len(fields) < 2 or [name for name, _ in fields[:2]] != ["n", "r"] or not fields[1][1]:
        raise DecodeError("a SCRAM client-first message without n and r")
    username = _name(fields[0][1])
    if not username:
        raise DecodeError("a SCRAM client-first message without a user name")
    gs2_header = text[: len(text) - len(bare)]
    return ClientFirst(username, fields[1][1], _name(authorization[2:]), dict(fields[2:]), gs2_header, bare)


class ScramServer:
    """One exchange on the server's side. An error ends the exchange."""

    def __init__(self, mechanism: ScramMechanism, *, nonce: str = "") -> None:
        """Begin an exchange. `nonce` is the server's part, random by default."""
        self._mechanism = mechanism
        self._own_nonce = nonce or _random_nonce()
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._server_first = ""

    def receive_first(self, token: bytes) -> ClientFirst:
        """Read the client-first message, which names the user. Raises DecodeError for a malformed token."""
        if self._first is not None:
            raise DecodeError("a second SCRAM client-first message")
        self._first = read_client_first(token)
        return self._first

    def challenge(self, credential: ScramCredential) -> bytes:
        """Return the server-first message for the user's credential; for a name that is no user's, a made-up one."""
        if self._first is None:
            raise AuthenticationFailed("nobody has asked")
        if credential.iterations < ITERATIONS_MIN:  # mutant: scram-iterations
            raise AuthenticationFailed(f"{credential.iterations} iterations are fewer than {ITERATIONS_MIN}")
        if self._first.authorization_id not in ("", self._first.username):
            raise AuthenticationFailed("acting as another user is not supported")
        self._credential = credential
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._first.nonce}{self._own_nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def receive_final(self, token: bytes) -> bytes:
        """Return the server-final message once the client has proved to know the password.

        Raises:
            AuthenticationFailed: it has not.
            DecodeError: a malformed token.
        """
        first, credential, mechanism = self._first, self._credential, self._mechanism
        if first is None or credential is None:
            raise DecodeError("a SCRAM client-final message before a challenge")
        # mutant: scram-one-guess
        self._credential = None  # one guess for each challenge
        without_proof, _, proof_text = _text(token).rpartition(",p=")
        fields = _fields(without_proof)
        if [name for name, _ in fields[:2]] != ["c", "r"]:
            raise DecodeError("a SCRAM client-final message without c, r and p")
        if _base64(fields[0][1]) != first.gs2_header.encode():  # mutant: scram-binding
            raise AuthenticationFailed("another channel binding than before")
        if fields[1][1] != first.nonce + self._own_nonce:  # mutant: scram-nonce
            raise AuthenticationFailed("another nonce than the one sent (CVE-2024-56128)")
        signed = f"{first.bare},{self._server_first},{without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        proof = _base64(proof_text)
        if len(proof) != len(signature):
            raise AuthenticationFailed("a proof of another size than the hash")
        # mutant: scram-proof
        if not hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key):
            raise AuthenticationFailed("wrong user name or password")
        return b"v=" + b64encode(mechanism.hmac(credential.server_key, signed))


class ScramClient:
    """One exchange on the client's side. An error ends the exchange."""

    def __init__(
        self, mechanism: ScramMechanism, username: str, password: str, *, is_token: bool = False, nonce: str = ""
    ) -> None:
        """Begin an exchange. `is_token`: name and password are a delegation token's. `nonce` is random by default."""
        _utf8(username + password)
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce or _random_nonce()
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={self._nonce}{',tokenauth=true' if is_token else ''}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, token: bytes) -> bytes:
        """Return the proof for the server's challenge. The computing takes milliseconds, more for more iterations.

        Raises:
            AuthenticationFailed: the server does not use our nonce, or asks for too little or too much work.
            DecodeError: a malformed token.
        """
        mechanism = self._mechanism
        server_first = _text(token)
        fields = _fields(server_first)
        if [name for name, _ in fields[:3]] != ["r", "s", "i"]:
            raise DecodeError("a SCRAM server-first message without r, s and i")
        (_, nonce), (_, salt), (_, iterations_text) = fields[:3]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server does not answer this client's nonce")
        if not iterations_text.isdecimal() or not iterations_text.isascii() or len(iterations_text) > 10:
            raise DecodeError("a SCRAM server-first message with i that is no number")
        iterations = int(iterations_text)
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise AuthenticationFailed(f"the server wants {iterations} iterations")
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{server_first},{without_proof}".encode()
        salted_password = mechanism.salted_password(self._password, _base64(salt), iterations)
        client_key = mechanism.hmac(salted_password, b"Client Key")
        self._server_signature = mechanism.hmac(mechanism.hmac(salted_password, b"Server Key"), signed)
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, token: bytes) -> None:
        """Check that the server has proved to know the credential.

        Raises:
            AuthenticationFailed: it has not, or refuses.
            DecodeError: a malformed token.
        """
        name, value = _fields(_text(token))[0]
        if name == "e":
            raise AuthenticationFailed(f"the server says {value}")
        if name != "v":
            raise DecodeError("a SCRAM server-final message without v and e")
        if not self._server_signature or not hmac.compare_digest(_base64(value), self._server_signature):
            raise AuthenticationFailed("the server does not know the password's keys")


def _random_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # it would show the password, so it is no cause either
        raise EncodeError("a name or password that cannot be written in UTF-8") from None


def _text(token: bytes) -> str:
    try:
        text = str(token, "utf-8")
    except UnicodeDecodeError as fault:
        raise DecodeError("a SCRAM message that is not UTF-8") from fault
    if "\0" in text:
        raise DecodeError("a SCRAM message with a NUL")
    return text


def _fields(text: str) -> list[tuple[str, str]]:
    """Split a message into attributes: a letter, an equals sign, anything but a comma."""
    fields = []
    for attribute in text.split(","):
        name, equals, value = attribute.partition("=")
        if not equals or not name.isalpha() or not name.isascii():
            raise DecodeError("a SCRAM message with something that is no attribute")
        fields.append((name, value))
    return fields


def _name(escaped: str) -> str:
    """Read a user name, in which = and , are written =3D and =2C."""
    pieces = escaped.split("=")
    if any(piece[:2] not in ("2C", "3D") for piece in pieces[1:]):
        raise DecodeError("a SCRAM user name with = that escapes nothing")
    return pieces[0] + "".join({"2C": ",", "3D": "="}[piece[:2]] + piece[2:] for piece in pieces[1:])


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as fault:
        raise DecodeError("a SCRAM attribute that is not base64") from fault


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
