"""The catalog as the event loop sees it: each change is awaited, and made in a thread.

    await catalog.set_topic_configs(…)      durable when this returns; nothing is stored if it raises CatalogError

Changes are made in the order of the calls. Those that wait together become one transaction (`CatalogFile.make`). A
change goes on when its caller is cancelled. What is in memory must follow the catalog even then: a caller that changes
memory runs in a task that nobody cancels (change_order.py). Until the call returns, memory has what was stored before.

What is stored is read once, at the start, before anything is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from broker_contract.acls import Binding
from broker_contract.quotas import Entity
from protocol_lib.scram import ScramCredential

from storage_svc.topics.catalog_file import CatalogContents, CatalogError, CatalogFile, CatalogTopic

#: Changes of one transaction: each takes 10 to 100 µs.
_TOGETHER_MAX: Final = 100

T = TypeVar("T")


class Catalog:
    """Owner: the storage service's event loop. Every change raises CatalogError if it cannot be stored."""

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, "millrace-catalog")
        #: The changes that are not begun, with the futures of their callers.
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[Any]]] = []
        self._making: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    def open(cls, data_dir: Path) -> Catalog:
        """Open the catalog as `CatalogFile.open` does, which waits for the disk."""
        return cls(CatalogFile.open(data_dir))

    @property
    def file(self) -> CatalogFile:
        """The file below, whose calls wait for the disk: for a start."""
        return self._file

    def read(self) -> CatalogContents:
        """Return what is stored, at the start; it waits for the disk.

        Raises:
            CatalogError: it cannot be read.
        """
        return self._file.read()

    def begin_topics(self, names: Mapping[bytes, str]) -> asyncio.Future[None]:
        return self._change(partial(self._file.begin_topics, names))

    def add_topics(self, topics: Collection[CatalogTopic]) -> asyncio.Future[None]:
        return self._change(partial(self._file.add_topics, topics))

    def set_partition_counts(self, counts: Mapping[str, int]) -> asyncio.Future[None]:
        return self._change(partial(self._file.set_partition_counts, counts))

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> asyncio.Future[None]:
        return self._change(partial(self._file.set_topic_configs, name, configs))

    def remove_topics(self, names: Collection[str]) -> asyncio.Future[None]:
        return self._change(partial(self._file.remove_topics, names))

    def forget_deletions(self, topic_ids: Collection[bytes]) -> asyncio.Future[None]:
        return self._change(partial(self._file.forget_deletions, topic_ids))

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> asyncio.Future[None]:
        return self._change(partial(self._file.set_group_configs, group_id, configs))

    def set_broker_configs(self, configs: Mapping[str, Mapping[str, str]]) -> asyncio.Future[None]:
        return self._change(partial(self._file.set_broker_configs, configs))

    def set_client_metrics(self, subscription: str, configs: Mapping[str, str]) -> asyncio.Future[None]:
        return self._change(partial(self._file.set_client_metrics, subscription, configs))

    def change_acls(self, added: Collection[Binding], removed: Collection[Binding]) -> asyncio.Future[None]:
        return self._change(partial(self._file.change_acls, added, removed))

    def set_quotas(self, quotas: Mapping[Entity, Mapping[str, float]]) -> asyncio.Future[None]:
        return self._change(partial(self._file.set_quotas, quotas))

    def set_credentials(self, credentials: Mapping[tuple[str, int], ScramCredential | None]) -> asyncio.Future[int]:
        return self._change(partial(self._file.set_credentials, credentials))

    def allocate_producer_ids(self, count: int) -> asyncio.Future[range]:
        return self._change(partial(self._file.allocate_producer_ids, count))

    def add_gateway(self, name: str) -> asyncio.Future[int]:
        return self._change(partial(self._file.add_gateway, name))

    def extend_rules_lease(self, lease_ms: int) -> asyncio.Future[None]:
        return self._change(partial(self._file.extend_rules_lease, lease_ms))

    def _change(self, change: Callable[[], T]) -> asyncio.Future[T]:
        """Make a change after all that were asked for before. Its arguments must not change until then."""
        loop = asyncio.get_running_loop()
        made: asyncio.Future[T] = loop.create_future()
        if self._closed:
            made.set_exception(CatalogError("catalog: it is closed"))
            return made
        self._waiting.append((change, made))
        if self._making is None:
            self._making = loop.create_task(self._make_waiting(), name="catalog")
        return made  # mutant: answered-after-commit

    async def _make_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            some, self._waiting = self._waiting[:_TOGETHER_MAX], self._waiting[_TOGETHER_MAX:]
            try:
                # mutant: catalog-off-loop
                outcomes = await loop.run_in_executor(self._thread, self._file.make, [change for change, _ in some])
            except BaseException as error:  # a bug, or the end of the process; the callers must go on
                outcomes = [error] * len(some)
            for (_, made), outcome in zip(some, outcomes, strict=True):
                if made.done():  # its caller was cancelled
                    continue
                if isinstance(outcome, BaseException):
                    made.set_exception(outcome)
                else:
                    made.set_result(outcome)
        self._making = None

    async def close(self) -> None:
        """Make the changes that wait, refuse later ones, and close the file."""
        if self._closed:
            return
        self._closed = True
        while self._making is not None:
            await asyncio.wait({self._making})
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)  # it syncs
        self._thread.shutdown()
