"""Listeners have the protocols that the settings say; one that everybody may use on a network has to be named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_svc.errors import ListenerError
from gateway_svc.listener_protocols import ProtocolName, protocols_of
from gateway_svc.listener_security import ListenerSecurity
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.login import PLAINTEXT
from gateway_svc.settings import GatewaySettings
from service_chassis import logs
from service_chassis.address import parse_listeners
from service_chassis.settings import SettingsError
from service_chassis.tls import PeerCertificate

#: The users of a storage that nobody asks.
NOBODY: Any = None


def test_a_listener_has_the_protocol_of_the_map_or_of_its_name() -> None:
    listeners = parse_listeners("SSL://h:1,EXTERNAL://h:2,SASL_PLAINTEXT://h:3,INTERNAL://h:4")
    found = protocols_of(listeners, " external:sasl_ssl , Sasl_Plaintext : plaintext", "none")
    assert {each.listener.name: each.name for each in found} == {
        "SSL": ProtocolName.SSL,
        "EXTERNAL": ProtocolName.SASL_SSL,
        "SASL_PLAINTEXT": ProtocolName.PLAINTEXT,
        "INTERNAL": ProtocolName.PLAINTEXT,
    }


def test_a_listener_with_a_login_asks_for_certificates_only_if_it_is_named() -> None:
    listeners = parse_listeners("SSL://h:1,SASL_SSL://h:2,OTHER://h:3")
    none, requested, required = PeerCertificate.NONE, PeerCertificate.REQUESTED, PeerCertificate.REQUIRED
    for text, expected in (
        ("required", [required, none, required]),
        ("REQUIRED,sasl_ssl:requested,Other:none", [required, requested, none]),
        ("sasl_ssl:required", [none, required, none]),
    ):
        found = protocols_of(listeners, "OTHER:SSL", text)
        assert [each.client_auth for each in found] == expected


OPEN = (
    "MILLRACE_LISTENERS: other machines can reach A://{}, where clients do not say who they are; set"
    " MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP to a protocol with authentication, or MILLRACE_OPEN_LISTENERS to A if"
    " each of them may do everything"
)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"listener_security_protocol_map": "A=SSL"}, "'A=SSL' is not NAME:PROTOCOL"),
        ({"listener_security_protocol_map": ":SSL"}, "':SSL' is not NAME:PROTOCOL"),
        (
            {"listener_security_protocol_map": "A:TLS"},
            "'TLS' is no security protocol: it must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        ),
        ({"listener_security_protocol_map": "A:SSL,a:SSL"}, "the listener A is named twice"),
    ],
)
def test_a_map_that_cannot_be_used(given: dict[str, Any], refused: str) -> None:
    with pytest.raises(SettingsError) as error:
        GatewaySettings(listeners="A://localhost:1", **given)
    assert str(error.value) == f"MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP: {refused}"


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (
            {"listener_security_protocol_map": "B:SSL"},
            "MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP: there is no listener B",
        ),
        ({"ssl_client_auth": "B:required"}, "MILLRACE_SSL_CLIENT_AUTH: there is no listener B"),
        (
            {"ssl_client_auth": "B:maybe"},
            "MILLRACE_SSL_CLIENT_AUTH: 'maybe' must be none, requested or required, or NAME: and one of them",
        ),
        ({"open_listeners": "A,B"}, "MILLRACE_OPEN_LISTENERS: there is no listener B"),
        ({"listeners": "A://0.0.0.0:1"}, OPEN.format("0.0.0.0:1")),
        ({"listeners": "A://:1"}, OPEN.format(":1")),
        ({"listeners": "A://kafka.example:1"}, OPEN.format("kafka.example:1")),
        (
            {
                "listeners": "A://0.0.0.0:1",
                "listener_security_protocol_map": "A:SSL",
                "ssl_client_auth": "requested",
            },
            OPEN.format("0.0.0.0:1"),
        ),
    ],
)
def test_listeners_that_are_not_served(given: dict[str, Any], refused: str) -> None:
    with pytest.raises(SettingsError) as error:
        GatewaySettings(**{"listeners": "A://localhost:1", **given})
    assert str(error.value) == refused


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": "A://127.0.0.1:1,B://[::1]:2,C://localhost:3"},
        {"listeners": "A://0.0.0.0:1", "open_listeners": " a "},
        {"listeners": "A://0.0.0.0:1", "listener_security_protocol_map": "A:SASL_PLAINTEXT"},
        {"listeners": "SSL://0.0.0.0:1", "ssl_client_auth": "required"},
        {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SSL:SSL"},
    ],
)
def test_listeners_that_are_served(given: dict[str, Any]) -> None:
    GatewaySettings(**given)


def test_an_open_listener_has_a_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    settings = GatewaySettings(listeners="A://0.0.0.0:1,B://localhost:2", open_listeners="A")
    with logs.configured("test", "warning", "json"):
        assert ListenerSecurity(settings, NOBODY, NOBODY, GatewayMetrics()).protocols == {
            "A": PLAINTEXT,
            "B": PLAINTEXT,
        }
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["listener"]) == ("warning", "A://0.0.0.0:1")
    assert line["event"] == "everyone who reaches this listener may do everything"


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, "it needs MILLRACE_SSL_KEY_FILE"),
        ({"ssl_key_file": "/k"}, "it needs MILLRACE_SSL_CERTIFICATE_FILE"),
        (
            {"ssl_key_file": "/k", "ssl_certificate_file": "/c", "ssl_client_auth": "required"},
            "it needs MILLRACE_SSL_CA_FILE",
        ),
        ({"ssl_key_file": "/no/key", "ssl_certificate_file": "/c"}, "/no/key: No such file or directory"),
    ],
)
def test_a_listener_without_its_files_ends_the_start(given: dict[str, Any], refused: str) -> None:
    settings = GatewaySettings(listener_security_protocol_map="EXTERNAL:SSL", **given)
    with pytest.raises(ListenerError) as error:
        ListenerSecurity(settings, NOBODY, NOBODY, GatewayMetrics())
    assert str(error.value) == f"listener EXTERNAL: {refused}"


@pytest.mark.parametrize("mechanisms", ["", "OTHER:PLAIN"])
def test_a_listener_without_mechanisms_ends_the_start(mechanisms: str) -> None:
    protocols = "EXTERNAL:SASL_PLAINTEXT"
    settings = GatewaySettings(listener_security_protocol_map=protocols, sasl_enabled_mechanisms=mechanisms)
    with pytest.raises(ListenerError, match="listener EXTERNAL: it needs MILLRACE_SASL_ENABLED_MECHANISMS"):
        ListenerSecurity(settings, NOBODY, NOBODY, GatewayMetrics())


@pytest.mark.parametrize("mechanisms", ["GSSAPI", "PLAIN,PLAIN", "plain", "EXTERNAL:", "OAUTHBEARER"])
def test_mechanisms_that_are_refused(mechanisms: str) -> None:
    with pytest.raises(SettingsError):
        GatewaySettings(sasl_enabled_mechanisms=mechanisms)
