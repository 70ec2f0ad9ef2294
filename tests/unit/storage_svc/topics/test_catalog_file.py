"""The catalog on a real file: the next process reads the writes of the one before, and a failure leaves nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_contract.acls import Binding, Operation, PatternType, Permission, ResourceType
from protocol_lib.scram import ScramCredential, ScramMechanism
from storage_svc.topics.catalog_file import FILE_NAME, CatalogError, CatalogFile, CatalogTopic

ORDERS = CatalogTopic("orders", b"o" * 16, 3, {"retention.ms": "-1"})
USERS = CatalogTopic("users", b"u" * 16, 1)
Reopened = Callable[[], CatalogFile]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogFile]:
    opened = CatalogFile.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def reopened(catalog: CatalogFile, tmp_path: Path) -> Iterator[Reopened]:
    """Close the catalog, and open it again as the next process does."""
    opened = [catalog]

    def reopen() -> CatalogFile:
        opened[-1].close()
        opened.append(CatalogFile.open(tmp_path))
        return opened[-1]

    yield reopen
    opened[-1].close()


def test_topics_survive(catalog: CatalogFile, reopened: Reopened) -> None:
    catalog.add_topics([USERS])
    catalog.add_topics([ORDERS])
    again = reopened()
    assert again.read().topics == [ORDERS, USERS]


def test_only_its_user_reads_it(tmp_path: Path) -> None:
    """A file of an older version, which everybody could read, as well."""
    (tmp_path / FILE_NAME).touch(0o644)
    (tmp_path / FILE_NAME).chmod(0o644)
    catalog = CatalogFile.open(tmp_path)
    catalog.add_topics([ORDERS])
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    catalog.close()
    assert modes == dict.fromkeys([FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"], 0o600)


def test_a_removed_topic_is_a_deletion_until_it_is_forgotten(catalog: CatalogFile, reopened: Reopened) -> None:
    catalog.add_topics([ORDERS])
    catalog.remove_topics(["orders"])
    again = reopened()
    assert again.read().topics == []
    assert again.read().deletions == {ORDERS.id: "orders"}
    again.forget_deletions([ORDERS.id])
    assert again.read().deletions == {}
    again.add_topics([CatalogTopic("orders", b"n" * 16, 1)])
    assert again.read().topics == [CatalogTopic("orders", b"n" * 16, 1)]


def test_adding_over_a_row_that_a_crash_left_makes_that_a_deletion(catalog: CatalogFile) -> None:
    catalog.add_topics([ORDERS])
    catalog.add_topics([CatalogTopic("orders", b"n" * 16, 1)])
    assert catalog.read().topics == [CatalogTopic("orders", b"n" * 16, 1)]
    assert catalog.read().deletions == {ORDERS.id: "orders"}


def test_a_topic_whose_id_exists_is_refused_whole(catalog: CatalogFile) -> None:
    catalog.add_topics([ORDERS])
    with pytest.raises(CatalogError, match="UNIQUE"):
        catalog.add_topics([CatalogTopic("other", ORDERS.id, 1, {"retention.ms": "5"})])
    assert catalog.read().topics == [ORDERS]


def test_blocks_of_producer_ids_never_overlap(catalog: CatalogFile, reopened: Reopened) -> None:
    assert catalog.allocate_producer_ids(1000) == range(1000)
    again = reopened()
    assert again.next_producer_id() == 1000
    assert again.allocate_producer_ids(1000) == range(1000, 2000)
    again.skip_producer_ids(1500)
    assert again.next_producer_id() == 2000
    again.skip_producer_ids(2500)
    assert again.allocate_producer_ids(10) == range(2500, 2510)


def test_gateway_names_keep_their_node_ids(catalog: CatalogFile, reopened: Reopened) -> None:
    assert [catalog.add_gateway("gw-a"), catalog.add_gateway("gw-b")] == [1, 2]
    again = reopened()
    assert again.read().gateways == {"gw-a": 1, "gw-b": 2}
    assert again.add_gateway("gw-c") == 3


def test_configs_of_groups_survive(catalog: CatalogFile, reopened: Reopened) -> None:
    catalog.set_group_configs("g", {"a": "1", "b": "2"})
    catalog.set_group_configs("h", {"a": "3"})
    catalog.set_group_configs("g", {"b": "4"})
    catalog.set_group_configs("h", {})
    again = reopened()
    assert again.read().group_configs == {"g": {"b": "4"}}


def test_configs_of_brokers_survive_and_change_together(catalog: CatalogFile, reopened: Reopened) -> None:
    catalog.set_broker_configs({"": {"a": "1", "b": "2"}, "7": {"a": "3"}})
    catalog.set_broker_configs({"": {"b": "4"}, "7": {}, "*": {"c": "5"}})
    with pytest.raises(CatalogError):
        catalog.set_broker_configs({"": {}, "7": {"a": None}})  # type: ignore[dict-item]
    again = reopened()
    assert again.read().broker_configs == {"": {"b": "4"}, "*": {"c": "5"}}


TABLES = (
    "group_configs",
    "broker_configs",
    "client_metrics",
    "acls",
    "quotas",
    "credentials",
    "secrets",
    "user_revisions",
)
ACL = Binding(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:x", "*", Operation.READ, Permission.DENY)


@pytest.mark.parametrize(
    ("version", "missing"),
    [(1, TABLES), (2, TABLES[1:]), (3, TABLES[2:]), (4, TABLES[3:]), (5, TABLES[5:]), (6, TABLES[7:])],
)
def test_a_catalog_from_before_other_resources_had_configs(
    catalog: CatalogFile, reopened: Reopened, version: int, missing: tuple[str, ...]
) -> None:
    catalog.add_topics([ORDERS])
    catalog.set_credentials({("old", 1): ScramCredential(b"salt", 4096, b"of", b"old")})
    for table in missing:
        catalog._connection.execute(f"DROP TABLE {table}")
    catalog._connection.execute("DELETE FROM counters WHERE name = 'user_revision'")
    catalog._connection.execute(f"PRAGMA user_version = {version}")
    again = reopened()
    again.set_group_configs("g", {"a": "1"})
    again.set_broker_configs({"1": {"b": "2"}})
    again.set_client_metrics("s", {"c": "3"})
    again.change_acls([ACL], [])
    again.set_quotas({(("user", None),): {"request_percentage": 5.5}})
    credential = ScramCredential(b"salt", 4096, b"stored", b"server")
    users = {"old"} if version == 6 else set()
    assert again.read().user_revisions == dict.fromkeys(users, 1)
    revision = again.set_credentials({("alice", 1): credential, ("old", 1): None})
    last = reopened()
    assert last.read().topics == [ORDERS]
    assert (last.read().group_configs, last.read().broker_configs, last.read().client_metrics) == (
        {"g": {"a": "1"}},
        {"1": {"b": "2"}},
        {"s": {"c": "3"}},
    )
    assert (last.read().acls, last.read().quotas) == ([ACL], {(("user", None),): {"request_percentage": 5.5}})
    assert last.read().credentials == {"alice": {ScramMechanism.SHA_256: credential}}
    assert (last.read().user_revisions, last.read().users_revision) == ({"alice": revision}, revision)
    assert len(last.read().users_secret) == 32


def test_every_change_is_synced(catalog: CatalogFile) -> None:
    execute = catalog._connection.execute
    assert execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_newer_format_is_refused(catalog: CatalogFile, tmp_path: Path) -> None:
    catalog._connection.execute("PRAGMA user_version = 9")
    catalog.close()
    with pytest.raises(CatalogError, match="format 9"):
        CatalogFile.open(tmp_path)


def test_a_damaged_file_is_refused_wherever_the_damage_is(catalog: CatalogFile, tmp_path: Path) -> None:
    catalog.add_topics([ORDERS])
    catalog.close()
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    pages = len(content) // 4096
    assert pages > 5
    for page in range(pages):
        path.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
        with pytest.raises(CatalogError, match=f"^{path} is damaged .*: put a copy of it back, or move"):
            CatalogFile.open(tmp_path)


def test_a_full_disk_leaves_the_catalog_as_it_was(catalog: CatalogFile) -> None:
    catalog.add_topics([ORDERS])
    pages = catalog._connection.execute("PRAGMA page_count").fetchone()[0]
    catalog._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = CatalogTopic("big", b"b" * 16, 1, {f"key-{index}": "v" * 1000 for index in range(50)})
    with pytest.raises(CatalogError, match="full"):
        catalog.add_topics([big])
    assert catalog.read().topics == [ORDERS]
    catalog._connection.execute("PRAGMA max_page_count = 1000000")
    catalog.add_topics([big])
    assert [topic.name for topic in catalog.read().topics] == ["big", "orders"]


def test_the_file_is_sqlite(catalog: CatalogFile, tmp_path: Path) -> None:
    catalog.add_topics([ORDERS])
    other = sqlite3.connect(tmp_path / FILE_NAME)
    assert other.execute("SELECT name, partition_count FROM topics").fetchall() == [("orders", 3)]
    other.close()
