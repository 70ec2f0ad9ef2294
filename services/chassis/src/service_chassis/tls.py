"""TLS from PEM files that may change: contexts of servers and clients, and the watch that renews them.

    TlsFiles ── Certificates ── context     of the files at the start, then of each good change

The files are compared every CHECK_S by their content. It does not matter how they change: in place, by rename, or by
the links of a Kubernetes secret. A pair that cannot be used, or that has expired, leaves the old one in force,
with one line in the log. A change between two files is seen as a wrong pair at most, and is read again the next time.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from service_chassis import logs
from service_chassis.x509 import Certificate, read_certificate

#: Seconds between two looks at the files.
CHECK_S: Final = 10.0
#: Ciphers of TLS 1.2; those of 1.3 are all good.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_FILE_BYTES_MAX: Final = 1 << 20

log = logs.get(__name__)


class TlsError(Exception):
    """Files that cannot be used; the text is for the operator."""


class PeerCertificate(StrEnum):
    """The certificate that a server asks of its clients: Kafka's values of ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of one end: its key, its certificate with those that lead to the CA, and the CAs of its peers."""

    key: str
    certificate: str
    ca: str = ""

    def contents(self) -> tuple[bytes, ...]:
        """Return the content of each file.

        Raises:
            TlsError: a file cannot be read.
        """
        return tuple(_content(path) for path in (self.key, self.certificate, self.ca) if path)


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise TlsError(f"{path}: more than {_FILE_BYTES_MAX} bytes")
    return content


#: A function that makes the context of files. It raises TlsError.
MakeContext = Callable[[TlsFiles], ssl.SSLContext]


def server_context(files: TlsFiles, peers: PeerCertificate) -> ssl.SSLContext:
    """Return a server's context.

    Raises:
        TlsError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(_CIPHERS)  # mutant: good-ciphers
    context.options |= ssl.OP_NO_RENEGOTIATION
    _prepare(context, files)
    context.verify_mode = {
        PeerCertificate.NONE: ssl.CERT_NONE,
        PeerCertificate.REQUESTED: ssl.CERT_OPTIONAL,
        PeerCertificate.REQUIRED: ssl.CERT_REQUIRED,
    }[peers]
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a client that shows its certificate, if any, and knows servers by `files.ca` and names.

    Raises:
        TlsError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _prepare(context, files)
    return context


def _prepare(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A CA may be an intermediate one, as in Java's trust stores.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if files.certificate:
        _load_pair(context, files)
    if files.ca:
        try:
            context.load_verify_locations(files.ca)
        except OSError as error:
            raise TlsError(f"{files.ca}: {explained(error)}") from error


def _load_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    def ask() -> str:
        raise TlsError(f"{files.key}: the key is encrypted")

    try:
        context.load_cert_chain(files.certificate, files.key, ask)
    except OSError as error:
        raise TlsError(f"{files.certificate} and {files.key}: {explained(error)}") from error


def explained(error: Exception) -> str:
    """Return the reason of an error of TLS in words."""
    reason = getattr(error, "reason", None)
    text = reason.replace("_", " ").lower() if reason else getattr(error, "strerror", None) or str(error)
    verified = getattr(error, "verify_message", None)
    return f"{text}: {verified}" if verified else text


class Certificates:
    """The context of some files, renewed while they change. One event loop uses it."""

    def __init__(
        self,
        name: str,
        files: TlsFiles,
        make: MakeContext,
        now: Callable[[], float] = time.time,  # wall clock: certificates have dates
    ) -> None:
        """Read the files. `name`: what they are for, for log lines; `now`: seconds since 1970.

        Raises:
            TlsError: a file cannot be used.
        """
        self._name = name
        self._files = files
        self._make = make
        self._now = now
        self._fresh_until = time.monotonic() + CHECK_S
        self._contents = files.contents()
        #: The fault of the files as they are now.
        self._fault = ""
        self.context, self.certificate = self._loaded()
        if self.certificate.valid_until < now():
            log.error("certificate has expired", of=name, subject=self.certificate.subject)

    def _loaded(self) -> tuple[ssl.SSLContext, Certificate]:
        """Return the files' context and certificate, once a handshake with them has ended well."""
        made = self._make(self._files)
        return made, read_certificate(_tried_with_itself(self._files))

    def fresh(self) -> ssl.SSLContext:
        """Return the context in force, after a look at the files if the last one was long ago."""
        now = time.monotonic()
        if now >= self._fresh_until:
            self._fresh_until = now + CHECK_S
            self.check()
        return self.context

    async def watch(self) -> None:
        """Follow the files, without end."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    def check(self) -> bool:
        """Look at the files; return whether others are in force now."""
        try:
            contents = self._files.contents()
            if contents == self._contents:
                self._fault = ""
                return False
            context, certificate = self._loaded()
            if self._files.contents() != contents:  # they change just now
                return False
            if certificate.valid_until < self._now():  # mutant: expired-certificate-not-used
                raise TlsError(f"{self._files.certificate}: the certificate has expired")
        except (TlsError, ValueError) as error:
            if self._fault != str(error):
                self._fault = str(error)
                log.error("new certificate not used, the old one stays", of=self._name, reason=self._fault)
            return False
        self._contents, self._fault = contents, ""
        self.context, self.certificate = context, certificate
        log.info(
            "new certificate in use",
            of=self._name,
            subject=certificate.subject,
            valid_until=datetime.fromtimestamp(certificate.valid_until, UTC).isoformat(),
        )
        return True


def _tried_with_itself(files: TlsFiles) -> bytes:
    """Shake hands with the files' key in memory; return the DER of the certificate that a client sees.

    Raises:
        TlsError: the key cannot be used.
    """
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    _load_pair(serving, files)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server)
    try:
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise TlsError(f"{files.certificate}: {explained(error)}") from error
    return client.getpeercert(binary_form=True) or b""
