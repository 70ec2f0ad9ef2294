"""A caller of the control services over gRPC, like a gateway and admin-api."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from broker_contract import stubs
from broker_contract import topics_pb2 as topics
from broker_contract.version import CONTRACT_VERSION
from service_chassis import rpc
from service_chassis.grpc_channel import Channel
from storage_svc.app import Storage, serve
from storage_svc.rpc.server import StorageServer
from storage_svc.settings import StorageSettings


@dataclass
class Peer:
    """The stubs of one channel, and the server they talk to."""

    storage: Storage
    server: StorageServer
    channel: Channel

    def __post_init__(self) -> None:
        self.topics = stubs.TopicsStub(self.channel)
        self.groups = stubs.GroupsStub(self.channel)
        self.producers = stubs.ProducersStub(self.channel)
        self.cluster = stubs.ClusterStub(self.channel)

    async def create(self, *new: topics.NewTopic, validate_only: bool = False) -> list[topics.CreatedTopic]:
        request = topics.CreateTopicsRequest(validate_only=validate_only, topics=new)
        return list((await self.topics.CreateTopics(request)).topics)

    async def describe(self, *names: str, auto_create: bool = False) -> list[topics.Topic]:
        refs = [topics.TopicRef(name=name) for name in names]
        request = topics.DescribeTopicsRequest(topics=refs, all=not names, auto_create=auto_create)
        return list((await self.topics.DescribeTopics(request)).topics)

    async def names(self) -> list[str]:
        return [topic.name for topic in await self.describe()]

    async def configs(self, kind: int, name: str, *keys: str) -> topics.ResourceConfigs:
        resource = topics.ConfigResource(type=kind, name=name, keys=keys, all_keys=not keys)
        (answer,) = (await self.topics.DescribeConfigs(topics.DescribeConfigsRequest(resources=[resource]))).resources
        return answer


P = TypeVar("P", bound=Peer)


@contextlib.asynccontextmanager
async def served(kind: type[P], folder: Path, **settings: object) -> AsyncIterator[P]:
    """Serve a storage with these settings on `storage.sock` of the folder, to a peer of that kind."""
    storage = await Storage.start(StorageSettings(data_dir=folder / "data", **settings))  # type: ignore[arg-type]
    server = await serve(storage, f"unix:{folder}/storage.sock")
    channel = rpc.channel(f"unix:{folder}/storage.sock", CONTRACT_VERSION)
    yield kind(storage, server, channel)
    await channel.close()
    await storage.answer_parked()
    await server.stop(1)
    await storage.stop()


def new(name: str, partitions: int = -1, replication: int = -1, **configs: str | None) -> topics.NewTopic:
    entries = [topics.ConfigEntry(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return topics.NewTopic(name=name, partition_count=partitions, replication_factor=replication, configs=entries)
