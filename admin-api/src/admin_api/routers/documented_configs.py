"""Configurations of topics, groups and brokers with their defaults, types and meanings."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import unquote

from broker_contract.acls import CLUSTER_NAME, Operation
from fastapi import FastAPI, Path, Request
from service_chassis.http import audit

from admin_api.configs import ConfiguredResource, documented
from admin_api.needs import Calls, Needs, in_request
from admin_api.rights import CLUSTER, GROUP, TOPIC, Action
from admin_api.routers.operations import Operations
from admin_api.schemas.configs import AlterTopicConfigs, DocumentedConfigs
from admin_api.storage import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from admin_api.view import ResourceName

PATH = "/api/v1/configs/{resource_type}/{resource_name}"
_TYPES = {"topic": TOPIC_RESOURCE, "group": GROUP_RESOURCE, "broker": BROKER_RESOURCE}

ResourceType = Annotated[Literal["topic", "group", "broker"], Path()]
_KINDS = {"topic": TOPIC, "group": GROUP}


def _needs(operation: Operation) -> Needs:
    """Return the need of an operation on a topic, on a group or, for brokers, on the cluster."""

    def actions(request: Request) -> list[Action]:
        kind = _KINDS.get(request.path_params["resource_type"], CLUSTER)
        name = CLUSTER_NAME if kind is CLUSTER else unquote(request.path_params["resource_name"])
        return [(operation, kind, name)]

    return in_request(f"{operation.name} topic, group or cluster", actions)


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Configs (api/v1)")
    operations.change("POST", PATH, "alterConfigs", alter_configs, needs=_needs(Operation.ALTER_CONFIGS))
    operations.get(PATH, "listDocumentedConfigs", list_documented_configs, needs=_needs(Operation.DESCRIBE_CONFIGS))


async def list_documented_configs(
    calls: Calls, resource_type: ResourceType, resource_name: ResourceName
) -> DocumentedConfigs:
    """List the configurations of a topic, a group or a broker, with the default and the meaning of each."""
    found = await _resource(calls, resource_type, resource_name).configs()
    return DocumentedConfigs(
        resource_type=resource_type, resource_name=resource_name, data=[documented(each) for each in found]
    )


async def alter_configs(
    calls: Calls,
    resource_type: ResourceType,
    resource_name: ResourceName,
    given: AlterTopicConfigs,
    request: Request,
) -> None:
    """Change several configurations at once: all of them, or none. With validate_only, only check them."""
    audit.note(request, configs=given.names, validate_only=given.validate_only)
    await _resource(calls, resource_type, resource_name).alter(given)


def _resource(calls: Calls, resource_type: str, name: str) -> ConfiguredResource:
    is_default = resource_type == "broker" and name == "-"
    return ConfiguredResource(calls, _TYPES[resource_type], "" if is_default else name)
