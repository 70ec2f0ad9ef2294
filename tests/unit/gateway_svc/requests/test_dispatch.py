"""The table of routes has the versions that the handlers declare: no more, and none twice."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import gateway_svc.handlers
import protocol_lib.messages
import pytest
from gateway_svc.handlers import HANDLERS, heartbeat
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.contexts import GroupContext, NoContext
from gateway_svc.requests.dispatch import Dispatcher, api_ranges
from gateway_svc.requests.handler import NOTHING, Handler
from protocol_lib.api import APIS, ApiKey

from tests.unit.gateway_svc.rig import parts

#: Versions of Kafka 4.3: it serves no 0 of the first any more, and 4.4 is the first to serve 6 of the second.
SERVED_AS_BY_KAFKA = {ApiKey.WRITE_TXN_MARKERS: (1, 2), ApiKey.TXN_OFFSET_COMMIT: (0, 5)}


def test_what_is_served_is_served_in_every_version() -> None:
    for key, low, high in api_ranges(HANDLERS):
        assert (low, high) == SERVED_AS_BY_KAFKA.get(key, (0, APIS[key].max_version)), ApiKey(key).name


def test_every_handler_has_a_message_module_of_its_name() -> None:
    messages = {each.name for each in pkgutil.iter_modules(protocol_lib.messages.__path__)}
    names = {each.name for each in pkgutil.iter_modules(gateway_svc.handlers.__path__)}
    modules = {name: importlib.import_module(f"gateway_svc.handlers.{name}") for name in names}
    declared = {name: module.HANDLER for name, module in modules.items() if hasattr(module, "HANDLER")}
    assert set(declared) == names & messages
    shared = {handler for module in modules.values() for handler in getattr(module, "HANDLERS", ())}
    assert {*declared.values(), *shared} == set(HANDLERS)
    assert {handler.api_key.name.lower() for handler in declared.values()} == set(declared)


def test_an_api_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match="HEARTBEAT is registered twice"):
        Dispatcher([heartbeat.HANDLER, heartbeat.HANDLER], parts().contexts, GatewayMetrics())


def test_a_version_that_is_not_declared_cannot_be_served() -> None:
    newer = dataclasses.replace(heartbeat.HANDLER, max_version=5)
    with pytest.raises(ValueError, match="Heartbeat: versions 0-5 are not all declared"):
        Dispatcher([newer], parts().contexts, GatewayMetrics())


def test_a_handler_cannot_be_served_without_its_context() -> None:
    with pytest.raises(ValueError, match="HEARTBEAT: there is no GroupContext"):
        Dispatcher([heartbeat.HANDLER], [NoContext()], GatewayMetrics())


def test_a_handler_says_what_it_needs_and_how_it_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 3 required keyword-only arguments: 'context'"):
        Handler(ApiKey.HEARTBEAT, 0, 4, heartbeat.serve)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="HEARTBEAT: `resources` is not a function"):
        Handler(
            ApiKey.HEARTBEAT,
            0,
            4,
            heartbeat.serve,
            context=GroupContext,
            resources=None,  # type: ignore[arg-type]
            refuse=heartbeat.refuse,
        )


def test_apis_that_anybody_may_ask() -> None:
    assert {each.api_key for each in HANDLERS if each.resources is NOTHING} == {
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
