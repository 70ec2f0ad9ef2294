"""The broker configs that this gateway obeys: its settings under Kafka's names, and those altered at run time.

The gateway registers its settings with storage, which describes and alters configs of all brokers. Each renewal of the
lease brings the alterations; an alteration that this gateway passes on is in force when its client is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_contract.cluster_pb2 import GatewayConfig
from service_chassis import logs

from gateway_svc.clients.entrance import Entrance, connections_max
from gateway_svc.settings import GatewaySettings

#: Kafka's names -> the fields of the settings.
_FIELDS: Final[Mapping[str, str]] = {
    "advertised.listeners": "advertised_listeners",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "connections.max.reauth.ms": "connections_max_reauth_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "listener.security.protocol.map": "listener_security_protocol_map",
    "listeners": "listeners",
    "max.connection.creation.rate": "connections_per_second",
    "max.connections": "max_connections",
    "max.connections.per.ip": "max_connections_per_ip",
    "sasl.enabled.mechanisms": "sasl_enabled_mechanisms",
    "sasl.oauthbearer.expected.audience": "sasl_oauthbearer_expected_audience",
    "sasl.oauthbearer.expected.issuer": "sasl_oauthbearer_expected_issuer",
    "sasl.oauthbearer.jwks.endpoint.url": "sasl_oauthbearer_jwks_endpoint_url",
    "sasl.oauthbearer.sub.claim.name": "sasl_oauthbearer_sub_claim_name",
    "socket.request.max.bytes": "socket_request_max_bytes",
    "ssl.client.auth": "ssl_client_auth",
    "ssl.keystore.key": "ssl_key_file",
    "ssl.keystore.location": "ssl_certificate_file",
    "ssl.principal.mapping.rules": "ssl_principal_mapping_rules",
    "ssl.truststore.location": "ssl_ca_file",
}
#: The config whose 0 is no limit here, and Kafka's number for that.
_RATE: Final = "max.connection.creation.rate"
_UNLIMITED: Final = 2**31 - 1

log = logs.get(__name__)


def registered(settings: GatewaySettings) -> list[GatewayConfig]:
    """Return the settings as broker configs."""
    return [
        GatewayConfig(
            name=name,
            value=_text(name, getattr(settings, field)),
            default_value=_text(name, GatewaySettings.fields[field].default),
            is_set=field in settings.given and getattr(settings, field) != "",
            documentation=GatewaySettings.fields[field].description,
        )
        for name, field in _FIELDS.items()
    ]


def _text(name: str, value: object) -> str | None:
    """Return a setting as Kafka shows it."""
    if name == _RATE and value == 0:
        return str(_UNLIMITED)
    return str(value) if value != "" else None


class AlteredConfigs:
    """The configs of this gateway that were altered at run time. Its app owns it."""

    def __init__(self, settings: GatewaySettings, entrance: Entrance, *, with_storage: bool) -> None:
        self._settings = settings
        self._entrance = entrance
        self._with_storage = with_storage
        self._altered: Mapping[str, str] = {}

    def apply(self, altered: Mapping[str, str]) -> None:
        """Follow these alterations and no others. Open connections stay, however many there are."""
        if altered == self._altered:
            return
        self._altered = altered
        most, most_per_address, rate = (
            int(altered.get(name, getattr(self._settings, _FIELDS[name])))
            for name in ("max.connections", "max.connections.per.ip", _RATE)
        )
        self._entrance.limit(
            most=connections_max(most, with_storage=self._with_storage),
            most_per_address=most_per_address,
            rate=0 if rate == _UNLIMITED else rate,
        )
        log.info("configs altered", **{name.replace(".", "_"): value for name, value in altered.items()})
