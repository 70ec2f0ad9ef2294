"""Changes of configurations, of topics and brokers alike. They differ in their examples only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.clusters import ConfigSource, ConfigSynonym
from admin_api.schemas.requests import Request, Text, example

#: Changes of one request: there are 34 configurations of a topic, and fewer than 100 of a broker.
CHANGES_MAX = 100


ConfigType = Literal["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD", "UNKNOWN"]


class DocumentedConfig(Answer):
    name: str
    value: str | None = Field(description="Null when it is sensitive, or when nothing is set.")
    default: str | None = Field(description="The value after a reset; null if there is none, or if it is not known.")
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: ConfigSource
    type: ConfigType
    documentation: str
    synonyms: list[ConfigSynonym] = Field(description="Where else a value comes from, the one in force first.")


class DocumentedConfigs(Answer):
    resource_type: Literal["topic", "group", "broker"]
    resource_name: str
    data: list[DocumentedConfig] = Field(description="By name.")


class UpdateConfigRequest(Request):
    value: Text | None = Field(None, description="The new value, as text whatever the configuration's type is.")


class ConfigChange(Request):
    name: Text
    value: Text | None = Field(None, description="The new value; without meaning when the operation is DELETE.")
    operation: Literal["SET", "DELETE"] | None = Field(None, description="SET when absent. DELETE: the default again.")


class AlterConfigsRequest(Request):
    data: Annotated[list[ConfigChange], Field(max_length=CHANGES_MAX, fail_fast=True)]
    validate_only: bool = Field(False, description="Only check whether the changes could be made.")

    @property
    def names(self) -> str:
        """The names of the configurations, for the audit log."""
        return ",".join(change.name for change in self.data)


class UpdateTopicConfig(UpdateConfigRequest):
    model_config = example(value="604800000")


class AlterTopicConfigs(AlterConfigsRequest):
    model_config = example(
        data=[{"name": "retention.ms", "value": "604800000"}, {"name": "cleanup.policy", "operation": "DELETE"}]
    )


class UpdateBrokerConfig(UpdateConfigRequest):
    model_config = example(value="1048588")


class AlterBrokerConfigs(AlterConfigsRequest):
    model_config = example(data=[{"name": "message.max.bytes", "value": "1048588"}])
