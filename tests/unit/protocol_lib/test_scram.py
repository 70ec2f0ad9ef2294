"""SCRAM: the RFC's exchange, Kafka's client and server on the other side, every way to be refused."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError, EncodeError, ProtocolError
from protocol_lib.scram import (
    AuthenticationFailed,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    read_client_first,
)

MECHANISMS = pytest.mark.parametrize("mechanism", list(ScramMechanism), ids=lambda mechanism: mechanism.mechanism_name)
#: The example of RFC 7677.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
RFC_7677 = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
JAVA = "org.apache.kafka.common.security.scram.internals."


def credential(mechanism: ScramMechanism, password: str = "pencil") -> ScramCredential:
    return ScramCredential.of_password(mechanism, password, salt=SALT)


def challenged(mechanism: ScramMechanism = ScramMechanism.SHA_256) -> tuple[ScramServer, ScramClient, bytes]:
    """Return a server that waits for the proof, the client, and its proof."""
    server = ScramServer(mechanism, nonce=SERVER_NONCE)
    client = ScramClient(mechanism, "user", "pencil", nonce=CLIENT_NONCE)
    server.receive_first(client.first())
    return server, client, client.final(server.challenge(credential(mechanism)))


def test_the_exchange_of_the_rfc():
    mechanism = ScramMechanism.SHA_256
    client = ScramClient(mechanism, "user", "pencil", nonce=CLIENT_NONCE)
    server = ScramServer(mechanism, nonce=SERVER_NONCE)
    assert client.first() == RFC_7677[0]
    assert server.receive_first(RFC_7677[0]).username == "user"
    assert server.challenge(credential(mechanism)) == RFC_7677[1]
    assert client.final(RFC_7677[1]) == RFC_7677[2]
    assert server.receive_final(RFC_7677[2]) == RFC_7677[3]
    client.verify(RFC_7677[3])


@MECHANISMS
def test_keys_are_those_of_kafka(kafka_classes, mechanism):
    names = f"{JAVA}ScramMechanism", f"{JAVA}ScramFormatter"
    theirs = kafka_classes.named(names[0]).forMechanismName(mechanism.mechanism_name)
    assert (theirs.type(), theirs.minIterations(), theirs.maxIterations()) == (mechanism.value, 4096, 16_384)
    made = kafka_classes.named(names[1])(theirs).generateCredential("größe", 4096)
    ours = ScramCredential.of_password(mechanism, "größe", salt=bytes(made.salt()))
    assert (ours.stored_key, ours.server_key) == (bytes(made.storedKey()), bytes(made.serverKey()))


@MECHANISMS
def test_kafka_s_formatter_makes_the_same_proofs(kafka_classes, mechanism):
    server, client, proof = challenged(mechanism)
    messages = kafka_classes.named(f"{JAVA}ScramMessages")
    first = messages.ClientFirstMessage(client.first())
    challenge = messages.ServerFirstMessage(CLIENT_NONCE, SERVER_NONCE, SALT, 4096)
    final = messages.ClientFinalMessage(proof)
    theirs = kafka_classes.named(f"{JAVA}ScramMechanism").forMechanismName(mechanism.mechanism_name)
    formatter = kafka_classes.named(f"{JAVA}ScramFormatter")(theirs)
    salted = formatter.saltedPassword("pencil", SALT, 4096)
    assert bytes(formatter.clientProof(salted, first, challenge, final)) == bytes(final.proof())
    signature = formatter.serverSignature(formatter.serverKey(salted), first, challenge, final)
    assert server.receive_final(proof) == b"v=" + b64encode(bytes(signature))


@given(
    username=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
    password=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    mechanism=st.sampled_from(list(ScramMechanism)),
)
def test_any_name_and_password(username, password, mechanism):
    server, client = ScramServer(mechanism), ScramClient(mechanism, username, password)
    assert server.receive_first(client.first()).username == username
    challenge = server.challenge(ScramCredential.of_password(mechanism, password))
    client.verify(server.receive_final(client.final(challenge)))


@MECHANISMS
def test_what_has_no_utf_8_is_refused_before_anything_is_sent(mechanism):
    for refused in (
        lambda: ScramClient(mechanism, "\ud800", "pencil"),
        lambda: ScramClient(mechanism, "user", "pencil\udfff"),
        lambda: ScramCredential.of_password(mechanism, "\ud800"),
    ):
        with pytest.raises(EncodeError):
            refused()


def test_a_delegation_token_says_so():
    first = read_client_first(ScramClient(ScramMechanism.SHA_256, "id", "hmac", is_token=True).first())
    assert first.is_token
    assert first.extensions == {"tokenauth": "true"}
    assert not read_client_first(RFC_7677[0]).is_token


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n",
        b"n,,",
        b"p=tls-unique,,n=user,r=abc",
        b"n,user,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=user=2,r=abc",
        b"n,,n=user,r=abc,1=x",
        b"n,,n=user,r=abc,",
        b"n,,n=us\0er,r=abc",
        b"n,,n=\xff,r=abc",
    ],
)
def test_first_messages_that_are_refused(token):
    with pytest.raises(DecodeError):
        ScramServer(ScramMechanism.SHA_256).receive_first(token)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda token: token.replace(b"k0,p=", b"k,p="), AuthenticationFailed),
        (lambda token: token.replace(b"k0,p=", b"k00,p="), AuthenticationFailed),
        (lambda token: token.replace(b"r=rOpr", b"r=ROpr"), AuthenticationFailed),
        (lambda token: token.replace(b"c=biws", b"c=eSws"), AuthenticationFailed),
        (lambda token: token.replace(b"p=dH", b"p=eH"), AuthenticationFailed),
        (lambda token: token.replace(b"p=dHzb", b"p="), AuthenticationFailed),
        (lambda token: token.replace(b",p=", b",x=y,p="), AuthenticationFailed),
        (lambda token: token.replace(b"p=dHzb", b"p=dHz"), DecodeError),
        (lambda token: token.replace(b",p=", b",q="), DecodeError),
        (lambda token: token.replace(b"c=biws,", b""), DecodeError),
        (lambda _: b"", DecodeError),
    ],
)
def test_proofs_that_are_refused(change, error):
    server, _, proof = challenged()
    with pytest.raises(error):
        server.receive_final(change(proof))
    with pytest.raises(DecodeError, match="before a challenge"):
        server.receive_final(proof)


def test_a_wrong_password_and_a_replayed_proof():
    server = ScramServer(ScramMechanism.SHA_256)
    client = ScramClient(ScramMechanism.SHA_256, "user", "pencils")
    server.receive_first(client.first())
    with pytest.raises(AuthenticationFailed, match="wrong user name or password"):
        server.receive_final(client.final(server.challenge(credential(ScramMechanism.SHA_256))))
    _, _, proof = challenged()
    later = ScramServer(ScramMechanism.SHA_256)
    later.receive_first(RFC_7677[0])
    later.challenge(credential(ScramMechanism.SHA_256))
    with pytest.raises(AuthenticationFailed, match="another nonce"):
        later.receive_final(proof)


@pytest.mark.parametrize(
    ("header", "nonce", "reason"),
    [
        (b"n,,", CLIENT_NONCE + SERVER_NONCE, None),
        (b"y,,", CLIENT_NONCE + SERVER_NONCE, "channel binding"),
        (b"p=tls-unique,,", CLIENT_NONCE + SERVER_NONCE, "channel binding"),
        (b"n,,", CLIENT_NONCE, "nonce"),
        (b"n,,", CLIENT_NONCE + SERVER_NONCE + "x", "nonce"),
    ],
)
def test_a_right_proof_over_something_else_is_refused(header, nonce, reason):
    """A client that knows the password, and signs what was not agreed."""
    mechanism = ScramMechanism.SHA_256
    server, _, _ = challenged()
    unproved = f"c={b64encode(header).decode()},r={nonce}"
    key = mechanism.hmac(mechanism.salted_password("pencil", SALT, 4096), b"Client Key")
    signed = b",".join((RFC_7677[0].removeprefix(b"n,,"), RFC_7677[1], unproved.encode()))
    signature = mechanism.hmac(mechanism.hash(key), signed)
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    token = f"{unproved},p={proof}".encode()
    if reason is None:
        assert server.receive_final(token) == RFC_7677[3]
    else:
        with pytest.raises(AuthenticationFailed, match=reason):
            server.receive_final(token)


def test_who_acts_as_another_or_was_stored_too_weakly_gets_no_challenge():
    stored = credential(ScramMechanism.SHA_256)
    server = ScramServer(ScramMechanism.SHA_256)
    assert server.receive_first(b"n,a=admin,n=user,r=abc").authorization_id == "admin"
    with pytest.raises(AuthenticationFailed, match="another user"):
        server.challenge(stored)
    server = ScramServer(ScramMechanism.SHA_256)
    server.receive_first(b"n,a=user,n=user,r=abc")
    assert server.challenge(stored).startswith(b"r=abc")
    weak = ScramCredential(SALT, 4095, stored.stored_key, stored.server_key)
    with pytest.raises(AuthenticationFailed, match="4095 iterations"):
        server.challenge(weak)


@MECHANISMS
def test_a_credential_fits_its_password_alone(mechanism):
    credential = ScramCredential.of_password(mechanism, "größe", iterations=5000)
    assert [credential.fits(mechanism, each) for each in ("größe", "große", "größe ")] == [True, False, False]
    other = next(each for each in ScramMechanism if each is not mechanism)
    assert not credential.fits(other, "größe")


@pytest.mark.parametrize(
    ("challenge", "error"),
    [
        (b"r=other%hv,s=W22Z,i=4096", AuthenticationFailed),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", AuthenticationFailed),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4095", AuthenticationFailed),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1000001", AuthenticationFailed),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=99999999999999", DecodeError),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=-1", DecodeError),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", DecodeError),
        (b"m=x,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096", DecodeError),
        (b"r=rOprNGfwEbeRWgbNEkqOx", DecodeError),
        (b"", DecodeError),
    ],
)
def test_challenges_that_a_client_refuses(challenge, error):
    client = ScramClient(ScramMechanism.SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    with pytest.raises(error):
        client.final(challenge)


@pytest.mark.parametrize(
    ("token", "error"),
    [
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G8=", AuthenticationFailed),
        (b"e=invalid-proof", AuthenticationFailed),
        (b"v=", AuthenticationFailed),
        (b"v=!", DecodeError),
        (b"x=y", DecodeError),
        (b"", DecodeError),
    ],
)
def test_answers_that_a_client_refuses(token, error):
    client = ScramClient(ScramMechanism.SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    with pytest.raises(AuthenticationFailed):
        client.verify(RFC_7677[3])
    client.final(RFC_7677[1])
    with pytest.raises(error):
        client.verify(token)


@given(st.binary(max_size=60), st.integers(0, 2))
def test_random_tokens_are_refused_in_order(token, step):
    server, client, _ = challenged()
    call = (ScramServer(ScramMechanism.SHA_256).receive_first, server.receive_final, client.verify)[step]
    with pytest.raises(ProtocolError):
        call(token)


def test_a_credential_does_not_show_its_keys():
    shown = repr(ScramCredential(b"salt", 4096, b"stored", b"server"))
    assert shown == "ScramCredential(salt=b'salt', iterations=4096)"
