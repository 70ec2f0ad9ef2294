"""The broker configs of a gateway: its settings under Kafka's names, and the limits that alterations set."""

from __future__ import annotations

from gateway_svc.clients.entrance import Entrance
from gateway_svc.gateway_configs import AlteredConfigs, registered
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.settings import GatewaySettings
from storage_svc.topics.broker_configs import GATEWAY_CONFIGS


def test_settings_as_broker_configs() -> None:
    settings = GatewaySettings(
        max_connections=7,
        connections_per_second=0,
        fetch_max_bytes=57_671_680,
        ssl_certificate_file="broker.pem",
        sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN",
    )
    rows = {each.name: each for each in registered(settings)}
    assert rows.keys() | {"node.id"} == GATEWAY_CONFIGS.keys()
    assert all(each.documentation for each in rows.values())
    shown = {name: (row.value, row.default_value, row.is_set) for name, row in rows.items()}
    assert shown["max.connections"] == ("7", "10000", True)
    assert shown["fetch.max.bytes"] == ("57671680", "57671680", True)
    assert shown["max.connections.per.ip"] == ("1000", "1000", False)
    assert shown["max.connection.creation.rate"] == ("2147483647", "1000", True)
    assert shown["connections.max.reauth.ms"] == ("0", "0", False)
    assert shown["ssl.keystore.location"] == ("broker.pem", "", True)
    assert shown["sasl.enabled.mechanisms"] == ("SCRAM-SHA-512,PLAIN", "", True)
    assert shown["ssl.client.auth"] == ("none", "none", False)
    advertised = rows["advertised.listeners"]
    assert (advertised.HasField("value"), advertised.HasField("default_value"), advertised.is_set) == (
        False,
        False,
        False,
    )


def test_alterations_set_limits_and_their_end_restores_the_settings() -> None:
    settings = GatewaySettings(max_connections=3, max_connections_per_ip=2, connections_per_second=0)
    entrance = Entrance(Refusals(GatewayMetrics()), lambda: 0.0, most=3, most_per_address=2, rate=0)
    altered = AlteredConfigs(settings, entrance, with_storage=False)

    def let_in() -> int:
        entries = [entrance.enter("10.0.0.1", port, "EXTERNAL") for port in range(6)]
        found = [entry for entry in entries if entry is not None]
        for entry in found:
            entry.leave()
        return len(found)

    assert let_in() == 2
    altered.apply({"max.connections.per.ip": "5"})
    assert (let_in(), entrance.take_turns(100)) == (3, (100, 0.0))
    altered.apply({"max.connections.per.ip": "5", "max.connections": "4", "max.connection.creation.rate": "2"})
    assert (let_in(), entrance.take_turns(100)) == (4, (3, 0.0))
    altered.apply({"max.connection.creation.rate": "2147483647"})
    assert (let_in(), entrance.take_turns(100)) == (2, (100, 0.0))
    altered.apply({})
    assert let_in() == 2
