"""Transactions, as their coordinator and the logs know them."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import GivenInt32, Request
from admin_api.schemas.resources import Int32, Int64


class TransactionPartition(Answer):
    topic_name: str
    partition_id: Int32


class Transaction(Answer):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int32
    state: str = Field(description="Kafka's name: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, …")
    timeout_ms: Int32
    started_at: Int64 | None = Field(description="In ms since 1970; null when none has begun.")
    age_ms: Int64 | None = Field(description="Null when it is ended.")
    partitions_count: Int32
    partitions: list[TransactionPartition] = Field(description="The first 100 that have no marker yet.")


class TransactionList(Answer):
    data: list[Transaction]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class OpenInPartition(Answer):
    partition_id: Int32
    start_offset: Int64 = Field(description="The first offset of the transaction, before which readers stop.")
    producer_id: Int64
    producer_epoch: Int32
    coordinator_epoch: Int32
    last_timestamp: Int64 | None = Field(description="Largest timestamp of the last batch in ms; null if unknown.")
    transactional_id: str | None = Field(description="Null if the coordinator knows no open transaction of it.")
    is_hanging: bool = Field(description="Whether nothing will end it but an abort in the partition.")


class OpenInPartitionList(Answer):
    topic_name: str
    data: list[OpenInPartition] = Field(description="By partition and offset; at most 1,000.")


class AbortInPartition(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"partition_id": 0, "start_offset": 17}]})

    partition_id: Annotated[GivenInt32, Field(ge=0)]
    start_offset: Annotated[int, Field(ge=0, le=2**63 - 1, json_schema_extra={"format": "int64"})] = Field(
        description="The first offset of the transaction, as the list of the topic's open transactions has it."
    )
