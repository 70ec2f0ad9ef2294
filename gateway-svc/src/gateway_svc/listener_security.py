"""The wire and the login of each listener, from the settings: the one place where TLS and SASL are plugged in.

protocol          wire          login
PLAINTEXT         PlainWire     open_login
SSL               TlsWire       open_login: the user of the client's certificate
SASL_PLAINTEXT    PlainWire     sasl_login
SASL_SSL          TlsWire       sasl_login
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from broker_contract.user_revisions import UserRevisions
from service_chassis import logs
from service_chassis.address import parse_listeners
from service_chassis.shared_turns import stranger_turns
from service_chassis.tls import Certificates, PeerCertificate, TlsError, TlsFiles, server_context
from service_chassis.x509 import read_certificate

from gateway_svc.clients.plain_wire import PlainWire
from gateway_svc.clients.tls_wire import TlsEnd, TlsWire
from gateway_svc.clients.wire import ANONYMOUS, MakeWire
from gateway_svc.errors import ListenerError
from gateway_svc.listener_protocols import ListenerProtocol, protocols_of
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.principal_rules import PrincipalRules
from gateway_svc.requests.login import Login, SecurityProtocol, open_login
from gateway_svc.sasl.login import sasl_login
from gateway_svc.sasl.mechanisms import Mechanisms
from gateway_svc.sasl.session import Sessions
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.protocols import Users

log = logs.get(__name__)


class ListenerSecurity:
    """The security protocols of one gateway's listeners, and the certificates that it watches for them."""

    def __init__(
        self, settings: GatewaySettings, users: Users, revisions: UserRevisions, metrics: GatewayMetrics
    ) -> None:
        """Read the files, and log which listeners are open to everyone.

        Raises:
            ListenerError: a listener cannot be served as the settings say.
        """
        self._settings = settings
        #: The certificates by what is asked of clients.
        self._certificates: dict[PeerCertificate, Certificates] = {}
        self._mechanisms = Mechanisms(settings, users, revisions, metrics)
        self._rules = PrincipalRules(settings.ssl_principal_mapping_rules)
        #: The security protocol of each listener by its name.
        self.protocols: Mapping[str, SecurityProtocol] = {
            each.listener.name: self._made(each)
            for each in protocols_of(
                parse_listeners(settings.listeners), settings.listener_security_protocol_map, settings.ssl_client_auth
            )
        }

    def _made(self, protocol: ListenerProtocol) -> SecurityProtocol:
        listener = protocol.listener
        if protocol.is_anonymous:
            log.warning("everyone who reaches this listener may do everything", listener=str(listener))
        login: Login = open_login
        if protocol.name.has_login:
            if not self._mechanisms.of(listener.name):
                raise ListenerError(f"listener {listener.name}: it needs MILLRACE_SASL_ENABLED_MECHANISMS")
            login = sasl_login(self._mechanisms)
        try:
            make_wire = self._tls_wire(protocol.client_auth) if protocol.name.is_encrypted else PlainWire
        except TlsError as error:
            raise ListenerError(f"listener {listener.name}: {error}") from error
        return SecurityProtocol(make_wire, login)

    def _tls_wire(self, client_auth: PeerCertificate) -> MakeWire:
        certificates = self._certificates.get(client_auth)
        if certificates is None:
            make = partial(server_context, peers=client_auth)
            certificates = Certificates("listeners", self._files(client_auth), make)
            self._certificates[client_auth] = certificates
        end = TlsEnd(lambda: certificates.context, self._principal, stranger_turns(asyncio.get_running_loop()))
        return partial(TlsWire, end)

    def _files(self, client_auth: PeerCertificate) -> TlsFiles:
        settings = self._settings
        asks = client_auth is not PeerCertificate.NONE
        for variable, path in (
            ("MILLRACE_SSL_KEY_FILE", settings.ssl_key_file),
            ("MILLRACE_SSL_CERTIFICATE_FILE", settings.ssl_certificate_file),
            ("MILLRACE_SSL_CA_FILE", settings.ssl_ca_file or not asks),
        ):
            if not path:
                raise TlsError(f"it needs {variable}")
        return TlsFiles(settings.ssl_key_file, settings.ssl_certificate_file, settings.ssl_ca_file if asks else "")

    def _principal(self, certificate: bytes | None) -> str:
        """Return the user of a client's certificate. Raises ValueError if no rule is for it."""
        if certificate is None:
            return ANONYMOUS
        return f"User:{self._rules.name(read_certificate(certificate).subject)}"

    @property
    def expires_at(self) -> float:
        """Time until which the certificate in force is valid, in seconds since 1970; 0 without TLS."""
        return min((each.certificate.valid_until for each in self._certificates.values()), default=0.0)

    @property
    def sessions(self) -> Sessions:
        """The sessions that end when their users are altered or deleted."""
        return self._mechanisms.sessions

    def close(self) -> None:
        """End the threads of logins."""
        self._mechanisms.close()

    async def watch(self) -> None:
        """Follow the files of certificates, without end."""
        async with asyncio.TaskGroup() as watching:
            for each in self._certificates.values():
                watching.create_task(each.watch(), name="certificates")
