"""Changes of every kind, asked for at once, ended before and after each transaction of the catalog in turn.

After the next start all that was answered is there. What was not answered is there or not, but no change of a name
without the earlier ones of that name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from broker_contract.acls import Binding, Operation, PatternType, Permission, ResourceType
from broker_contract.user_revisions import UserRevisions
from faults.simulated_disk import PowerCut
from faults.test_crash_points import WAYS
from faults.test_topic_crash_points import Life
from storage_svc.applied_settings import broker_settings
from storage_svc.settings import StorageSettings
from storage_svc.topics.access_rules import AccessRules
from storage_svc.topics.catalog_file import CatalogContents
from storage_svc.topics.client_metrics import ClientMetrics
from storage_svc.topics.group_configs import GroupConfigs
from storage_svc.topics.leases import Leases
from storage_svc.topics.users import Users

ACL = Binding(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:x", "*", Operation.READ, Permission.DENY)
QUOTA = {(("user", "x"),): {"producer_byte_rate": 5.0}}
KEYS = ("flush.ms", "segment.ms", "retention.ms")


class Changes:
    """Changes that are asked for at once, and the names of those that were answered, in order."""

    def __init__(self, life: Life) -> None:
        self.answered: list[str] = []
        self.deletes = False
        stored = life.catalog.read()
        self.leases = Leases(life.catalog, stored.gateways)
        self.groups = GroupConfigs(life.catalog, stored.group_configs, lambda _: 1, lambda *_: None)
        self.metrics = ClientMetrics(life.catalog, stored.client_metrics)
        self.brokers = broker_settings(StorageSettings(), life.catalog, stored.broker_configs)
        users = UserRevisions(stored.user_revisions, stored.users_revision)
        self.rules = AccessRules(life.catalog, stored.acls, stored.quotas, lambda: 0.0, 0, users)
        self.users = Users(life.catalog, stored.credentials, stored.users_secret, self.rules)
        self.life = life

    async def _note(self, name: str, change: Awaitable[object]) -> None:
        with suppress(PowerCut):
            await change
            self.answered.append(name)

    async def ask(self) -> None:
        registry = self.life.registry
        wanted: dict[str, Awaitable[object]] = {
            **{f"topic {key}": registry.configure("kept", _with(key)) for key in KEYS},
            "growth": registry.grow({"kept": 4}),
            "gateway a": self.leases.register("a", (), 3000, 0),
            "gateway a again": self.leases.register("a", (), 3000, 0),
            "gateway b": self.leases.register("b", (), 3000, 0),
            "group": self.groups.configure("g", {"consumer.session.timeout.ms": "1"}),
            "metrics": self.metrics.configure("m", {"metrics": "*"}),
            "broker": self.brokers.configure("1", {"log.retention.ms": "5"}),
            "acl": self.rules.change_acls(lambda: ([ACL], [])),
            "quota": self.rules.change_quotas(lambda: QUOTA),
            "user": self.users.add({"x": "secret"}),
            "ids": self.life.catalog.allocate_producer_ids(1000),
            "creation": registry.create("new", 1, {}),
        }
        await asyncio.gather(*(self._note(name, change) for name, change in wanted.items()))
        if (made := registry.get("new")) is not None:
            self.deletes = True
            await self._note("deletion", registry.delete([made]))
        await registry.finish()

    def check(self, stored: CatalogContents, next_id: int) -> None:
        """Check that what was answered is in the catalog after the next start."""
        topics = {topic.name: topic for topic in stored.topics}
        keys = list(topics["kept"].configs)
        assert sorted(keys, key=KEYS.index) == list(KEYS[: len(keys)])
        found = {
            **{f"topic {key}": key in keys for key in KEYS},
            "growth": topics["kept"].partition_count == 4,
            "gateway a": stored.gateways.get("a") == 1,
            "gateway a again": stored.gateways.get("a") == 1,
            "gateway b": stored.gateways.get("b") == 2,
            "group": stored.group_configs == {"g": {"consumer.session.timeout.ms": "1"}},
            "metrics": stored.client_metrics == {"m": {"metrics": "*"}},
            "broker": stored.broker_configs == {"*": {"log.retention.ms": "5"}},
            "acl": stored.acls == [ACL],
            "quota": stored.quotas == QUOTA,
            "user": stored.credentials.keys() == stored.user_revisions.keys() == {"x"},
            "ids": next_id == 1000,
            "creation": "new" in topics or self.deletes,
            "deletion": "new" not in topics,
        }
        assert [name for name in self.answered if not found[name]] == []
        assert stored.credentials.keys() == stored.user_revisions.keys()
        assert all(number <= stored.users_revision for number in stored.user_revisions.values())


def _with(key: str) -> Callable[[object], dict[str, str]]:
    def altered(own: object) -> dict[str, str]:
        assert isinstance(own, dict)
        return own | {key: "9"}

    return altered


async def _crash(path: Path, at: int) -> tuple[list[str], bool]:
    """End everything at a change of the disk or of the catalog, start again, and check; return what was answered, and
    whether that change came."""
    life = Life(path)
    await life.begin()
    life.write()
    changes = Changes(life)
    life.disk.journal = []
    life.disk.cut_at = life.disk.changes + at
    await changes.ask()
    was_cut = not life.disk.powered
    await life.catalog.close()
    life.disk.cut()
    life.disk.restart(WAYS["the process ends"](random.Random(at)))
    await life.open()
    changes.check(life.catalog.read(), life.catalog.file.next_producer_id())
    logs = life.folder.logs
    assert [logs["kept", index].log_end_offset for index in range(2)] == [1, 1]
    count = {topic.name: topic.partition_count for topic in life.catalog.read().topics}
    assert logs.keys() == {(name, index) for name, partitions in count.items() for index in range(partitions)}
    assert life.catalog.read().deletions == {}
    await life.catalog.close()
    return changes.answered, was_cut


async def test_every_crash_point_of_changes_that_are_asked_for_at_once(tmp_path: Path) -> None:
    answered: list[int] = []
    was_cut = True
    while was_cut:
        names, was_cut = await _crash(tmp_path / str(len(answered)), len(answered))
        answered.append(len(names))
    assert (answered[0], answered[-1]) == (0, 16)
    assert len(set(answered)) > 4
