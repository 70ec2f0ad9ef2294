"""The security protocols of listeners, as the settings name them.

    MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP=INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL

A listener that is not in the map has the protocol of its own name, else PLAINTEXT. Case does not matter, as in Kafka.

    protocol          bytes       its clients are known by
    PLAINTEXT         as they are nothing
    SSL               TLS         their certificates, if the listener asks for them
    SASL_PLAINTEXT    as they are a login
    SASL_SSL          TLS         a login
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service_chassis.address import Listener, is_loopback, parse_listeners
from service_chassis.tls import PeerCertificate


class ProtocolName(StrEnum):
    """A security protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self.endswith("SSL")

    @property
    def has_login(self) -> bool:
        return self.startswith("SASL")


def parse_map(text: str) -> Mapping[str, ProtocolName]:
    """Return the protocols in `NAME:PROTOCOL,…` by the names of listeners.

    Raises ValueError with a message for the operator.
    """
    found: dict[str, ProtocolName] = {}
    for item in text.split(",") if text.strip() else ():
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon or not name:
            raise ValueError(f"{item.strip()!r} is not NAME:PROTOCOL")
        if protocol not in ProtocolName.__members__:
            *most, last = ProtocolName
            raise ValueError(f"{protocol!r} is no security protocol: it must be {', '.join(most)} or {last}")
        if name in found:
            raise ValueError(f"the listener {name} is named twice")
        found[name] = ProtocolName(protocol)
    return found


def parse_names(text: str) -> frozenset[str]:
    """Return the names of listeners in `NAME,…`."""
    return frozenset(name.strip().upper() for name in text.split(",") if name.strip())


def parse_client_auth(text: str) -> Mapping[str, PeerCertificate]:
    """Return what is asked of clients in `none`, `requested` or `required`, or in `NAME:required,…` for listeners.

    The value without a name has the name "". Raises ValueError with a message for the operator.
    """
    found: dict[str, PeerCertificate] = {}
    for item in text.split(",") if text.strip() else ():
        name, _, wanted = (part.strip() for part in item.rpartition(":"))
        if wanted.upper() not in PeerCertificate.__members__:
            *most, last = PeerCertificate
            raise ValueError(f"{wanted!r} must be {', '.join(most)} or {last}, or NAME: and one of them")
        found[name.upper()] = PeerCertificate(wanted.lower())
    return found


@dataclass(frozen=True, slots=True)
class ListenerProtocol:
    """The way in which one listener is served."""

    listener: Listener
    name: ProtocolName
    #: The certificate asked of clients with TLS: on a listener with a login, only if it is named.
    client_auth: PeerCertificate

    @property
    def is_anonymous(self) -> bool:
        """Whether other machines reach it, and it lets clients in without authentication."""
        has_certificates = self.name.is_encrypted and self.client_auth is PeerCertificate.REQUIRED
        return not (is_loopback(self.listener.address.host) or self.name.has_login or has_certificates)


def protocols_of(listeners: Iterable[Listener], protocol_map: str, client_auth: str) -> Sequence[ListenerProtocol]:
    """Return how each listener is served, by the texts of the settings. Raises ValueError for a text that is none."""
    chosen, asked = parse_map(protocol_map), parse_client_auth(client_auth)
    own = {each.value: each for each in ProtocolName}
    found = []
    for each in listeners:
        name = chosen.get(each.name) or own.get(each.name, ProtocolName.PLAINTEXT)
        of_all = PeerCertificate.NONE if name.has_login else asked.get("", PeerCertificate.NONE)
        found.append(ListenerProtocol(each, name, asked.get(each.name, of_all)))
    return found


def check_listeners(listeners: str, protocol_map: str, client_auth: str, open_listeners: str) -> None:
    """Check that the settings fit each other; raise ValueError with a message for the operator."""
    listening = parse_listeners(listeners)
    named, names = parse_names(open_listeners), {each.name for each in listening}
    for variable, given in (
        ("LISTENER_SECURITY_PROTOCOL_MAP", parse_map(protocol_map).keys() - {*ProtocolName}),
        ("SSL_CLIENT_AUTH", parse_client_auth(client_auth).keys() - {""}),
        ("OPEN_LISTENERS", named),
    ):
        if unknown := sorted(given - names):
            raise ValueError(f"MILLRACE_{variable}: there is no listener {', '.join(unknown)}")
    for each in protocols_of(listening, protocol_map, client_auth):
        if each.is_anonymous and each.listener.name not in named:  # mutant: open-listener-named
            raise ValueError(
                f"MILLRACE_LISTENERS: other machines can reach {each.listener}, where clients do not say who they are;"
                " set MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP to a protocol with authentication, or"
                f" MILLRACE_OPEN_LISTENERS to {each.listener.name} if each of them may do everything"
            )
