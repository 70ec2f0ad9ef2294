"""Stock clients over TLS, by each mechanism that they have: records arrive, or the client says why they do not.

secured_clients.py has the clients, and the words of each for its faults.
"""

from __future__ import annotations

import datetime
import os
import shutil
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from conformance.secured_clients import CLIENTS, TLS, TOKEN, WITH_PASSWORD
from millrace.broker import Broker
from service_chassis import bearer_tokens, tls
from support.certificates import Authority, Pair
from support.late import Late
from support.token_issuer import Issuer
from support.waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

admin = Late("confluent_kafka.admin")
confluent = Late("confluent_kafka")

USER, PASSWORD = "alice", "alice-secret"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
#: The time of a session, and the number of records that a stream sends in two of them at most.
SESSION_MS, PAUSE_MS = 3_000, 60
IN_TWO_SESSIONS = 2 * SESSION_MS // PAUSE_MS
#: Clients whose streams run at the same time. kcat reports no record before the end.
STREAMS = (("librdkafka", "aiokafka", "kafka-python"), ("kafkajs", "sarama", "franz-go"), ("java",))
Need = Callable[..., None]
Asked = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A broker with logins and an authorizer, one with TLS alone, and one whose certificate has expired."""

    folder: Path
    authority: Authority
    issuer: Issuer
    #: The files of the first broker, which change.
    pair: Pair
    brokers: dict[str, Broker]

    def asked(self, mechanism: str, broker: str = "", **changed: Any) -> Asked:
        """Return an argument of a program. It is right, but for what is changed."""
        name = broker or ("logins" if mechanism else "tls")
        return {
            "bootstrap": self.brokers[name].bootstrap_servers,
            "authority": str(self.authority.certificate),
            "topic": "single",
            "mechanism": mechanism,
            "user": USER,
            "password": PASSWORD,
            "token": str(self.folder / "token"),
            **changed,
        }

    def write_token(self, name: str, **claims: Any) -> str:
        """Write the file of a token; return its path."""
        path = self.folder / name
        path.with_suffix(".new").write_text(self.issuer.token(USER, **claims))
        return str(path.with_suffix(".new").rename(path))

    def use(self, name: str) -> str:
        """Put another certificate in place of the one of the broker with logins; return it."""
        made = self.authority.issue(name)
        for source, target in ((made.key, self.pair.key), (made.certificate, self.pair.certificate)):
            shutil.copy(source, target.with_suffix(".new"))
            os.replace(target.with_suffix(".new"), target)
        return made.certificate.read_text()

    def login(self) -> dict[str, Any]:
        """Return the settings of a client of confluent-kafka that may do everything."""
        return {
            "bootstrap.servers": self.brokers["logins"].bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": ADMIN_PASSWORD,
        }

    @cached_property
    def administrator(self) -> Any:
        return admin.AdminClient(self.login())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("secured")
    authority, issuer = Authority(folder / "authority"), Issuer(folder)
    pair = Pair(folder / "server.key", folder / "server.pem")
    now = datetime.datetime.now(datetime.UTC)  # wall clock: dates of certificates
    days = [(now - datetime.timedelta(days=each)).strftime("%Y%m%d%H%M%SZ") for each in (2, 1)]
    server, expired = authority.issue("server"), authority.issue("expired", days=(days[0], days[1]))
    brokers = {
        "logins": Broker(
            tls=(pair.key, pair.certificate),
            topics="single:1",
            users={USER: PASSWORD, ADMIN: ADMIN_PASSWORD},
            sasl_enabled_mechanisms=",".join((*WITH_PASSWORD, TOKEN)),
            connections_max_reauth_ms=SESSION_MS,
            authorizer="acl",
            super_users=f"User:{ADMIN}",
            **issuer.settings,
        ),
        "tls": Broker(tls=(server.key, server.certificate), topics="single:1"),
        "expired": Broker(tls=(expired.key, expired.certificate), topics="single:1"),
    }
    made = Scene(folder, authority, issuer, pair, brokers)
    made.use("first")
    made.write_token("token")
    with pytest.MonkeyPatch.context() as patch, brokers["logins"], brokers["tls"], brokers["expired"]:
        patch.setattr(tls, "CHECK_S", 0.2)
        patch.setattr(bearer_tokens, "_UNKNOWN_S", 0.0)  # keys change more than once a minute here
        allow(made, "single")
        yield made


def allow(scene: Scene, topic: str) -> None:
    """Let the user write to topics whose names begin so."""
    kind, pattern, operation = admin.ResourceType.TOPIC, admin.ResourcePatternType.PREFIXED, admin.AclOperation.WRITE
    row = admin.AclBinding(kind, topic, pattern, f"User:{USER}", "*", operation, admin.AclPermissionType.ALLOW)
    scene.administrator.create_acls([row])[row].result(30)


def revoke(scene: Scene, topic: str) -> None:
    """Delete the ACL, and wait for the answer."""
    kind, pattern, operation = admin.ResourceType.TOPIC, admin.ResourcePatternType.PREFIXED, admin.AclOperation.ANY
    every = admin.AclBindingFilter(kind, topic, pattern, None, None, operation, admin.AclPermissionType.ANY)
    (row,) = scene.administrator.delete_acls([every])[every].result(30)
    assert row.name == topic


def cases(scene: Scene, name: str) -> dict[str, tuple[Asked, str]]:
    """Return the arguments of a client's program by case, each with the fault that it shows."""
    mechanisms = CLIENTS[name].mechanisms
    found = {f"{each or 'TLS'}": (scene.asked(each), "") for each in mechanisms}
    for each in set(mechanisms).intersection(WITH_PASSWORD):
        found[f"{each}, a wrong password"] = (scene.asked(each, password="wrong"), "password")
    if TOKEN in mechanisms:
        for kind, claims in {"foreign": {"aud": "others"}, "expired": {"lifetime_s": -100}}.items():
            found[f"{kind} token"] = (scene.asked(TOKEN, token=scene.write_token(kind, **claims)), "token")
    others = str(Authority(scene.folder / name, "another CA").certificate)
    found["a certificate of an unknown CA"] = (scene.asked(TLS, authority=others), "authority")
    found["an expired certificate"] = (scene.asked(TLS, "expired"), "expired")
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_served_or_shows_the_fault(scene: Scene, need: Need, name: str) -> None:
    client = CLIENTS[name]
    need(*client.needs)

    def outcome(case: tuple[Asked, str]) -> tuple[int, str]:
        asked, fault = case
        return client.outcome(client.start(**asked), fault)

    every = cases(scene, name)
    with ThreadPoolExecutor(client.at_a_time) as pool:
        seen = dict(zip(every, pool.map(outcome, every.values()), strict=True))
    assert seen == {case: (0 if fault else 3, fault) for case, (_, fault) in every.items()}


def ends(scene: Scene, topics: list[str]) -> dict[str, int]:
    """Return the number of records in each topic."""
    wanted = {confluent.TopicPartition(each, 0): admin.OffsetSpec.latest() for each in topics}
    found: dict[str, int] = {}

    def are_known() -> bool:
        try:
            for partition, answer in scene.administrator.list_offsets(wanted).items():
                found[partition.topic] = answer.result(30).offset
        except confluent.KafkaException:  # the administrator's session has ended, too
            return False
        return True

    until(are_known)
    return found


def values(scene: Scene, topics: list[str]) -> dict[str, list[int]]:
    """Return the values in each topic."""
    consumer = confluent.Consumer({**scene.login(), "group.id": "reader"})
    consumer.assign([confluent.TopicPartition(each, 0, 0) for each in topics])
    found: dict[str, list[int]] = {each: [] for each in topics}
    for _ in range(sum(ends(scene, topics).values())):
        record = consumer.poll(30)
        assert record is not None
        assert record.error() is None
        found[record.topic()].append(int(record.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("names", STREAMS, ids="+".join)
def test_streams_survive_new_certificates_and_keys_and_end_with_their_rights(
    scene: Scene, need: Need, request: pytest.FixtureRequest, names: tuple[str, ...]
) -> None:
    """No acknowledged record is lost, and no client hangs.

    Sessions end while they run: clients that log in again do so (KIP-368), the others connect again.
    """
    streams = {
        f"stream-{name}-{mechanism}": (CLIENTS[name], mechanism)
        for name in names
        for mechanism in CLIENTS[name].mechanisms
        if mechanism
    }
    for client, _ in streams.values():
        need(*client.needs)
    topics = list(streams)
    for created in scene.administrator.create_topics([admin.NewTopic(each, 1, 1) for each in topics]).values():
        created.result(30)
    allow(scene, "stream-")
    steady = {"count": 1_000_000, "pause_ms": PAUSE_MS}
    programs = {
        topic: client.start(**scene.asked(mechanism, topic=topic, **steady))
        for topic, (client, mechanism) in streams.items()
    }
    request.addfinalizer(lambda: [each.kill() for each in programs.values()])

    def go_on(count: int) -> None:
        """Wait until each stream that has not ended has this number of records more."""
        begin = ends(scene, topics)

        def went_on() -> bool:
            now = ends(scene, topics)
            return all(now[each] >= begin[each] + count or programs[each].poll() is not None for each in topics)

        until(went_on, lambda: f"from {begin} to {ends(scene, topics)}")

    go_on(10)
    certificate = scene.use(names[0])
    scene.issuer.add_key()
    scene.write_token("token")
    go_on(IN_TWO_SESSIONS)
    host, port = scene.brokers["logins"].bootstrap_servers.split(":")
    assert ssl.get_server_certificate((host, int(port))).strip() == certificate.strip()

    revoke(scene, "stream-")
    seen = {topic: client.outcome(programs[topic], "denied") for topic, (client, _) in streams.items()}
    assert {topic: fault for topic, (_, fault) in seen.items()} == dict.fromkeys(topics, "denied")
    found = values(scene, topics)
    for topic, (delivered, _) in seen.items():
        assert delivered > IN_TWO_SESSIONS
        assert list(dict.fromkeys(found[topic]))[:delivered] == list(range(delivered)), topic
