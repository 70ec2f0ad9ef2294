"""Keys and certificates for tests, made with openssl: a CA, and what it signs.

ca = Authority(folder); server = ca.issue("server"); ca.trust, server.files
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gateway_svc.clients.tls_wire import TlsEnd, TlsWire
from gateway_svc.clients.wire import ANONYMOUS, MakeWire
from service_chassis.shared_turns import stranger_turns
from service_chassis.tls import PeerCertificate, TlsFiles, server_context

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_NAMES = "DNS:localhost,IP:127.0.0.1,IP:::1"
_serial = itertools.count(1)


def openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Pair:
    """A key and its certificate, as PEM files."""

    key: Path
    certificate: Path


class Authority:
    """A CA in a folder."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key, self.certificate = folder / "ca.key", folder / "ca.pem"
        out = ("-keyout", str(self.key), "-out", str(self.certificate))
        use = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        openssl("req", "-x509", *_EC, "-days", "30", "-subj", f"/CN={name}", *use, *out)

    def issue(self, name: str, subject: str = "", *, names: str = _NAMES, days: tuple[str, str] | None = None) -> Pair:
        """Sign a certificate for `subject` (`/CN=NAME` by default); `days` are its first and last, as openssl's."""
        key, request, made = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        openssl(
            "req", "-new", *_EC, "-utf8", "-subj", subject or f"/CN={name}", "-keyout", str(key), "-out", str(request)
        )
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("authorityKeyIdentifier=keyid\n" + (f"subjectAltName={names}\n" if names else ""))
        options = ["-in", str(request), "-out", str(made), "-extfile", str(extensions)]
        options += ["-set_serial", str(next(_serial))]
        if days is None:
            options += ["-CA", str(self.certificate), "-CAkey", str(self.key), "-days", "30"]
            openssl("x509", "-req", *options)
        else:
            self._issue_for_days(request, made, extensions, days)
        return Pair(key, made)

    def _issue_for_days(self, request: Path, made: Path, extensions: Path, days: tuple[str, str]) -> None:
        """Sign with any dates: `openssl x509` knows only a number of days from now."""
        folder = self.folder / f"{made.stem}.db"
        folder.mkdir()
        (folder / "index.txt").touch()
        config = folder / "ca.cnf"
        config.write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index.txt\nnew_certs_dir={folder}\nrand_serial=yes\n"
            "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
        )
        signing = ["-cert", str(self.certificate), "-keyfile", str(self.key), "-config", str(config), "-batch"]
        dates = ["-startdate", days[0], "-enddate", days[1]]
        openssl("ca", *signing, *dates, "-in", str(request), "-out", str(made), "-extfile", str(extensions), "-notext")

    def files(self, pair: Pair) -> TlsFiles:
        return TlsFiles(str(pair.key), str(pair.certificate), str(self.certificate))

    def trust(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Return the context of a client that knows this CA, with the pair as its own certificate."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    def settings(self, pair: Pair) -> dict[str, str]:
        """Return the gateway's settings of a listener EXTERNAL with TLS."""
        return {
            "listener_security_protocol_map": "EXTERNAL:SSL",
            "ssl_key_file": str(pair.key),
            "ssl_certificate_file": str(pair.certificate),
            "ssl_ca_file": str(self.certificate),
        }


def tls_wire(files: TlsFiles) -> MakeWire:
    """Return the function that makes wires with TLS."""
    context = server_context(files, PeerCertificate.NONE)
    return lambda user, room: TlsWire(
        TlsEnd(lambda: context, lambda _: ANONYMOUS, stranger_turns(asyncio.get_running_loop())), user, room
    )
