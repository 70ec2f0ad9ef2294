"""A catalog on a real file, and a data folder with its registry of topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.configs import effective
from storage_svc.topics.registry import TopicRegistry


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    opened = Catalog.open(tmp_path)
    yield opened
    await opened.close()


def log_config(own: Mapping[str, str]) -> LogConfig:
    return LogConfig.from_properties(effective(own, {}))


class Folder:
    """A data folder that is opened and closed as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> None:
        self.logs = DataFolder.open(self.path, LogSettings())
        self.catalog = Catalog.open(self.path)
        self.registry = TopicRegistry(self.catalog, self.logs, log_config)
        await self.registry.reconcile(self.catalog.read())

    async def close(self) -> None:
        await self.logs.close()
        await self.catalog.close()

    async def restart(self) -> TopicRegistry[LogConfig]:
        await self.close()
        await self.open()
        return self.registry

    async def until_logs(self, count: int) -> None:
        """Wait until there are this many logs, or more."""
        async with asyncio.timeout(60):
            while len(self.logs.logs) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)

    def directories(self) -> list[str]:
        return sorted(each.name for each in self.path.iterdir() if each.is_dir())


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    made = Folder(tmp_path)
    await made.open()
    yield made
    await made.close()
