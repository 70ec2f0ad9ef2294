"""The catalog beside the event loop: order, changes made together, callers that leave, a disk that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogError, CatalogFile, CatalogTopic
from storage_svc.topics.change_order import ChangeOrder
from storage_svc.topics.leases import Leases

from tests.unit.storage_svc.topics.conftest import Folder

ORDERS = CatalogTopic("orders", b"o" * 16, 3)


class SlowFile(CatalogFile):
    """A catalog whose disk stands until `go_on`."""

    go_on: threading.Event
    #: The number of changes of each transaction.
    together: list[int]

    def make(self, changes: Sequence[Callable[[], object]]) -> list[object]:
        assert self.go_on.wait(10)
        self.together.append(len(changes))
        return super().make(changes)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SlowFile]:
    opened = SlowFile.open(tmp_path)
    opened.go_on, opened.together = threading.Event(), []
    yield opened
    opened.go_on.set()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_changes_that_wait_together_are_one_transaction_in_order(file: SlowFile) -> None:
    catalog = Catalog(file)
    first = catalog.set_group_configs("g", {"a": "0"})
    await turns()
    later = [catalog.set_group_configs("g", {"a": str(number)}) for number in range(1, 100)]
    await turns()
    assert not any(each.done() for each in (first, *later))
    file.go_on.set()
    await asyncio.gather(first, *later)
    assert file.together == [1, 99]
    assert catalog.read().group_configs == {"g": {"a": "99"}}
    await catalog.close()


async def test_a_change_that_is_refused_leaves_those_it_waited_with(file: SlowFile) -> None:
    catalog = Catalog(file)
    same_id = CatalogTopic("other", ORDERS.id, 1)
    made = [
        catalog.add_topics([ORDERS]),
        catalog.add_topics([same_id]),
        catalog.add_gateway("a"),
        catalog.add_gateway("b"),
    ]
    file.go_on.set()
    outcomes = await asyncio.gather(*made, return_exceptions=True)
    assert (outcomes[0], type(outcomes[1]), outcomes[2:]) == (None, CatalogError, [1, 2])
    assert (catalog.read().topics, catalog.read().gateways) == ([ORDERS], {"a": 1, "b": 2})
    await catalog.close()


async def test_a_change_goes_on_when_its_caller_leaves(file: SlowFile) -> None:
    catalog = Catalog(file)
    ids = catalog.allocate_producer_ids(1000)
    await turns()
    ids.cancel()
    file.go_on.set()
    assert await catalog.allocate_producer_ids(1000) == range(1000, 2000)
    await catalog.close()
    with pytest.raises(CatalogError, match="closed"):
        await catalog.add_gateway("late")


async def test_what_is_not_stored_yet_is_seen_by_nobody(folder: Folder, file: SlowFile) -> None:
    """While the disk stands the event loop goes on, and a topic is as it was; its changes are decided in order."""
    registry = folder.registry
    made = await registry.create("orders", 2, {})
    await folder.catalog.close()
    folder.catalog = registry._catalog = Catalog(file)
    seen: list[dict[str, str]] = []

    def altered(name: str) -> Callable[[object], dict[str, str]]:
        def alter(own: object) -> dict[str, str]:
            assert isinstance(own, dict)
            seen.append(own)
            return own | {name: "5"}

        return alter

    changes = [asyncio.create_task(registry.configure("orders", altered(name))) for name in ("segment.ms", "flush.ms")]
    growth = asyncio.create_task(registry.grow({"orders": 3}))
    deletion = asyncio.create_task(registry.delete([made]))
    creation = asyncio.create_task(registry.create("users", 1, {}))
    await turns()
    changes[0].cancel()
    await turns()
    assert (registry.get("orders"), registry.names(), registry.is_changing("users")) == (made, ["orders"], True)
    assert (registry.partition_count(), folder.logs.logs["orders", 0].config.segment_ms) == (4, 604_800_000)
    assert not any(each.done() for each in (changes[1], growth, deletion, creation))
    file.go_on.set()
    configured, _, (deleted,), _ = await asyncio.gather(changes[1], growth, deletion, creation)
    assert seen == [{}, {"segment.ms": "5"}]  # the first caller has left, and its change counts
    assert configured is not None
    assert configured.configs == deleted.configs == {"segment.ms": "5", "flush.ms": "5"}
    assert (deleted.partition_count, registry.names(), registry.partition_count()) == (3, ["users"], 1)
    assert await registry.configure("orders", altered("segment.ms")) is None
    assert [topic.name for topic in folder.catalog.read().topics] == ["users"]


async def test_processes_of_one_name_that_register_at_once_get_one_node_id(file: SlowFile) -> None:
    catalog = Catalog(file)
    leases = Leases(catalog, {"old": 7})
    registering = [asyncio.create_task(leases.register(name, (), 3000, 0)) for name in ("a", "a", "b")]
    await turns()
    assert (leases.live(0), leases.is_known(1)) == ([], False)
    assert (await leases.register("old", (), 3000, 0)).node_id == 7  # a renewal waits for no disk
    registering[0].cancel()
    file.go_on.set()
    assert [each.node_id for each in await asyncio.gather(*registering[1:])] == [1, 2]
    assert catalog.read().gateways == {"a": 1, "b": 2}
    await catalog.close()


async def test_changes_of_several_names_are_made_in_the_order_of_the_calls() -> None:
    order, made = ChangeOrder(), list[str]()

    async def change(name: str) -> None:
        made.append(f"{name} begins")
        await asyncio.sleep(0)
        made.append(f"{name} ends")

    wanted = {"one": ("a",), "both": ("a", "b"), "other": ("c",), "last": ("b",)}
    async with asyncio.TaskGroup() as group:
        for name, names in wanted.items():
            group.create_task(order.run(names, lambda name=name: change(name)))  # type: ignore[misc]
    assert made == [
        *("one begins", "other begins", "one ends", "other ends"),
        *("both begins", "both ends", "last begins", "last ends"),
    ]
    await order.finish()
    assert order._last == {}
