"""From kill -9 until everything is served: `millrace up` with 100 partitions and 2 GB of 16 KB batches.

That is a record acknowledged with acks=all, the offsets of 100 groups, and an InitProducerId of each of 4 transactional
ids. Before the kill each group has committed some hundred times, and each id has begun some thousand producers.

Under flush.policy=group everything was synced before the kill. Under os the first three quarters were, by a stop in
order; of the last quarter the kernel decided.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from group_wire import framed
from processes import descendants
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode
from protocol_lib.headers import decode_response_header
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raw import Connection, connect, receive
from table import Row

PARTITIONS = 100
GROUPS = [f"group-{number}" for number in range(100)]
TRANSACTIONAL_IDS = [f"transactional-{number}" for number in range(4)]
#: Commits of each group, and producers of each transactional id, with a scale of 1.
COMMITS, PRODUCERS = 400, 4_000
#: Seconds for which groups and transactions may load.
PATIENCE_S = 120.0


def _started(folder: Path, policy: str) -> tuple[subprocess.Popen[str], str]:
    """Start a broker in combined mode; return it, once ready, and its address."""
    millrace = str(Path(sys.executable).with_name("millrace"))
    command = [millrace, "up", "--data-dir", str(folder), "--kafka-port", "0", "--http-port", "0"]
    environment = {
        **os.environ,
        "MILLRACE_FLUSH_POLICY": policy,
        "MILLRACE_TOPICS": f"t:{PARTITIONS}",
        "MILLRACE_LOG_LEVEL": "error",
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"kafka=(\S+)", line)
    if found is None:
        raise RuntimeError(f"millrace up printed {line!r}")
    return process, found[1]


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the broker first. Its supervisor, which would start it again or stop it in order, is halted."""
    process.send_signal(signal.SIGSTOP)
    for pid in descendants(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _fill(address: str, size: float) -> None:
    for partition in range(PARTITIONS):
        connection = Connection(address, "t", partition)
        connection.produce(int(size / PARTITIONS / 16_000), 16_000, acks=-1, depth=20)
        connection.close()


class Coordinators:
    """A connection for requests of groups and transactions."""

    def __init__(self, address: str) -> None:
        self._socket = connect(address)

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: ApiKey, version: int, requests: Sequence[Any]) -> list[Any]:
        """Send the requests, and return their answers."""
        self._socket.sendall(b"".join(framed(api, version, each) for each in requests))
        answers = []
        for _ in requests:
            data = receive(self._socket, int.from_bytes(receive(self._socket, 4), "big"))
            _, position = decode_response_header(api, version, data)
            answers.append(decode(APIS[api].response, version, data, position))
        return answers

    def find(self) -> None:
        """Find the coordinators, at which a new broker makes their topics."""
        for kind, keys in ((0, GROUPS), (1, TRANSACTIONAL_IDS)):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=tuple(keys))
            self._until_served(lambda request=request: self._found(request))

    def _found(self, request: FindCoordinatorRequest) -> bool:
        (answer,) = self.ask(ApiKey.FIND_COORDINATOR, 4, [request])
        return not any(each.error_code for each in answer.coordinators)

    def fill(self, commits: int, producers: int) -> None:
        for number in range(commits):
            self._until_served(lambda offset=number: self._commit(offset))
        for _ in range(producers):
            self._until_served(self.init)

    def _commit(self, offset: int) -> bool:
        partitions = (OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=""),)
        topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
        answers = self.ask(
            ApiKey.OFFSET_COMMIT, 8, [OffsetCommitRequest(group_id=each, topics=topics) for each in GROUPS]
        )
        return not any(each.topics[0].partitions[0].error_code for each in answers)

    def fetch(self) -> bool:
        groups = tuple(OffsetFetchRequestGroup(group_id=each, topics=None) for each in GROUPS)
        (answer,) = self.ask(ApiKey.OFFSET_FETCH, 8, [OffsetFetchRequest(groups=groups)])
        return all(each.error_code == 0 and each.topics for each in answer.groups)

    def init(self) -> bool:
        requests = [
            InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=60_000) for each in TRANSACTIONAL_IDS
        ]
        return not any(each.error_code for each in self.ask(ApiKey.INIT_PRODUCER_ID, 4, requests))

    def _until_served(self, call: Any) -> None:
        give_up_at = time.perf_counter() + PATIENCE_S
        while not call():
            if time.perf_counter() > give_up_at:
                raise TimeoutError("groups or transactions are not served")
            time.sleep(0.01)

    def wait(self) -> None:
        """Wait until all groups and transactional ids are served."""
        self._until_served(self.init)
        self._until_served(self.fetch)


def _measure(folder: Path, policy: str, scale: float) -> Row:
    process, address = _started(folder, policy)
    coordinators = Coordinators(address)
    coordinators.fill(max(1, int(COMMITS * scale)), max(1, int(PRODUCERS * scale)))
    coordinators.close()
    _fill(address, 1.5e9 * scale)
    if policy == "os":
        process.terminate()
        process.wait()
        process, address = _started(folder, policy)
    _fill(address, 0.5e9 * scale)
    produced, seconds = [], []
    for _ in range(3):
        _kill(process)
        began = time.perf_counter()
        process, address = _started(folder, policy)
        connection = Connection(address, "t", PARTITIONS - 1)
        connection.produce(1, 16_000, acks=-1)
        produced.append(time.perf_counter() - began)
        connection.close()
        coordinators = Coordinators(address)
        coordinators.wait()
        seconds.append(time.perf_counter() - began)
        coordinators.close()
    _kill(process)
    figure = f"kill -9 to everything served, {PARTITIONS} partitions, {2 * scale:.1f} GB, flush.policy={policy}"
    first = f"a record after {produced[0]:.2f} s, {min(produced[1:]):.2f} s"
    return Row(figure, "<= 3 s", f"{seconds[0]:.2f} s, again {min(seconds[1:]):.2f} s ({first})")


def measure(folder: Path, scale: float) -> list[Row]:
    return [_measure(folder / policy, policy, scale) for policy in ("group", "os")]
