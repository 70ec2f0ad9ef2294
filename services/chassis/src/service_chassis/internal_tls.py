"""TLS between the services: mutual, by certificates of one CA, which are read again when they change.

    address                    without the files                          with them
    unix:/path                 no TLS: the socket's mode is 0600          no TLS
    loopback                   no TLS                                     mutual TLS
    any other                  an error, or no TLS with the word "off"    mutual TLS

Each service has a key and a certificate. A server lets in the clients of the CA, or those of them that it names. A
client knows a server by the CA and the host of its address.
"""

from __future__ import annotations

import ssl
from typing import Any, Literal

from service_chassis import logs
from service_chassis.address import is_loopback, is_unix, parse
from service_chassis.settings import Settings, setting
from service_chassis.tls import Certificates, PeerCertificate, TlsError, TlsFiles, client_context, server_context

log = logs.get(__name__)


class InternalTlsSettings(Settings):
    """The settings of every service that speaks gRPC."""

    internal_tls: Literal["mutual", "off"] = setting(
        "mutual",
        description="TLS between services at gRPC addresses that other machines can reach. The word mutual needs the "
        "files. The word off is for a private network, and leaves a line in the log.",
    )
    internal_tls_key_file: str = setting("", description="PEM file with this service's key, for other services.")
    internal_tls_certificate_file: str = setting(
        "",
        description="PEM file with this service's certificate, before those that lead to its CA. It and the other "
        "files are read again when they change.",
    )
    internal_tls_ca_file: str = setting("", description="PEM file with the CA of the services' certificates.")
    internal_tls_names: str = setting(
        "",
        description="DNS names, separated by commas, in the certificates of the services that may connect. Empty: "
        "every certificate of the CA.",
    )


class InternalTls:
    """This service's end of encrypted connections to others."""

    def __init__(self, settings: InternalTlsSettings, *, serves: bool) -> None:
        """Read the files.

        Raises:
            TlsError: a file cannot be used.
        """
        files = TlsFiles(
            settings.internal_tls_key_file, settings.internal_tls_certificate_file, settings.internal_tls_ca_file
        )
        self._certificates = Certificates("services", files, _serving if serves else _asking)
        self._names = {each.strip().lower() for each in settings.internal_tls_names.split(",") if each.strip()}
        #: The context that a server listens with: each handshake goes on with the one in force.
        self.listening = self._certificates.context
        if serves:
            self.listening.sni_callback = self._use_the_one_in_force

    def _use_the_one_in_force(self, tls: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        tls.context = self._certificates.fresh()

    def context(self) -> ssl.SSLContext:
        """Return the context in force, for the next connection."""
        return self._certificates.fresh()

    def refusal(self, tls: ssl.SSLObject) -> str | None:
        """Return why the peer of a connection may not connect, None if it may."""
        if not self._names:
            return None
        shown: Any = tls.getpeercert() or {}
        names = {name.lower() for kind, name in shown.get("subjectAltName", ()) if kind == "DNS"}
        if names & self._names:  # mutant: internal-name-checked
            return None
        return f"its certificate is for {', '.join(sorted(names)) or 'no name'}"


def _serving(files: TlsFiles) -> ssl.SSLContext:
    context = server_context(files, PeerCertificate.REQUIRED)
    context.set_alpn_protocols(["h2"])
    return context


def _asking(files: TlsFiles) -> ssl.SSLContext:
    context = client_context(files)
    context.set_alpn_protocols(["h2"])
    return context


def internal_tls(settings: InternalTlsSettings, address: str, variable: str, *, serves: bool) -> InternalTls | None:
    """Return the TLS of a gRPC address, None where there is none.

    Raises:
        TlsError: a file cannot be used, or the address needs files. `variable` names the address in the text.
    """
    if is_unix(address):
        return None
    is_open = not is_loopback(parse(address).host)
    files = {
        "MILLRACE_INTERNAL_TLS_KEY_FILE": settings.internal_tls_key_file,
        "MILLRACE_INTERNAL_TLS_CERTIFICATE_FILE": settings.internal_tls_certificate_file,
        "MILLRACE_INTERNAL_TLS_CA_FILE": settings.internal_tls_ca_file,
    }
    if settings.internal_tls == "off":
        if is_open:
            log.warning("services do not encrypt what they tell each other, and trust everyone", address=address)
        return None
    missing = [name for name, path in files.items() if not path]
    if not missing:
        return InternalTls(settings, serves=serves)
    if len(missing) < len(files) or is_open:
        need = f"{variable}: " + (f"other machines can reach {address}; set " if serves else f"{address} needs ")
        raise TlsError(f"{need}{', '.join(missing)}, or MILLRACE_INTERNAL_TLS to off on a private network")
    return None
