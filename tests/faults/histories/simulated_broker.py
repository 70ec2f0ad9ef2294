"""A correct broker in memory with clients on it, which make a history; and each anomaly, put into it once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.faults.histories.checker import Kind
from tests.faults.histories.history import ASSIGN, FAIL, INFO, OK, POLL, SEND, TRANSACTION, Operation, Records

KEYS = ("a", "b", "c")


@dataclass(slots=True)
class _Entry:
    """A record or a marker: `value` is None for a marker and for a record that the broker has lost."""

    value: str | None
    writer: Operation | None = None


@dataclass(slots=True)
class _Client:
    name: str
    position: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    open: Operation | None = None


class SimulatedBroker:
    """Logs of transactions and the operations of clients on them, at a clock that counts."""

    def __init__(self, chance: random.Random) -> None:
        self.history: list[Operation] = []
        self._chance = chance
        self._now = 0
        self._logs: dict[str, list[_Entry]] = {key: [] for key in KEYS}
        #: Transactions without an end. An aborted one hides its records.
        self._open: set[Operation] = set()
        self._aborted: set[Operation] = set()
        self._values = 0
        self._clients = [_Client(f"client-{number}") for number in range(4)]

    def tick(self) -> int:
        self._now += 1
        return self._now

    def value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def begin(self, process: str, kind: str, final: bool = False) -> Operation:
        operation = Operation(process, kind, self.tick(), final=final)
        self.history.append(operation)
        if kind == TRANSACTION:
            self._open.add(operation)
        return operation

    def end(self, operation: Operation, outcome: str = OK) -> None:
        """Commit or abort; INFO commits, and the client does not learn of it."""
        if operation.kind == TRANSACTION:
            if outcome == FAIL:
                self._aborted.add(operation)
            else:
                operation.commit_asked = self.tick()
            self._open.discard(operation)
            for key in {key for key, _, _ in operation.sends}:
                self._logs[key].append(_Entry(None))
        operation.outcome = outcome
        if outcome != INFO:
            operation.ended = self.tick()

    def send(self, operation: Operation, key: str, acknowledged: bool = True) -> str:
        value = self.value()
        operation.sends.append((key, value, len(self._logs[key]) if acknowledged else None))
        self._logs[key].append(_Entry(value, operation))
        return value

    def poll(self, operation: Operation, position: dict[str, int], limit: int = 100) -> Records:
        """Poll all keys from `position`, which goes on; return the records, which the operation has."""
        records: Records = {}
        for key, log in self._logs.items():
            begin = position[key]
            end = begin
            while end < len(log) and end - begin < limit and log[end].writer not in self._open:
                end += 1
            position[key] = end
            shown = [
                (offset, value)
                for offset, entry in enumerate(log[begin:end], begin)
                if (value := entry.value) is not None and entry.writer not in self._aborted
            ]
            if shown:
                records[key] = shown
        operation.polls.append((self.tick(), records))
        return records

    def run(self, steps: int) -> None:
        """Let clients do random operations, correctly."""
        for _ in range(steps):
            client = self._chance.choice(self._clients)
            self._transact(client) if client.open else self._chance.choice(
                [self._send, self._send, self._poll, self._begin, self._begin, self._assign, self._crash]
            )(client)

    def _send(self, client: _Client) -> None:
        operation = self.begin(client.name, SEND)
        is_known = self._chance.random() < 0.8
        self.send(operation, self._chance.choice(KEYS), is_known)
        self.end(operation, OK if is_known else INFO)

    def _poll(self, client: _Client) -> None:
        operation = self.begin(client.name, POLL)
        self.poll(operation, client.position, self._chance.randint(1, 6))
        self.end(operation)

    def _begin(self, client: _Client) -> None:
        client.open = self.begin(client.name, TRANSACTION)

    def _transact(self, client: _Client) -> None:
        operation = client.open
        assert operation is not None
        action = self._chance.choice([SEND, SEND, POLL, OK, OK, FAIL, INFO])
        if action == SEND:
            self.send(operation, self._chance.choice(KEYS))
        elif action == POLL:
            self.poll(operation, client.position, self._chance.randint(1, 6))
        else:
            client.open = None
            self.end(operation, action)
            if action == INFO:
                self._crash(client)

    def _assign(self, client: _Client) -> None:
        self.end(self.begin(client.name, ASSIGN))
        client.position = {key: self._chance.randint(0, len(log)) for key, log in self._logs.items()}

    def _crash(self, client: _Client) -> None:
        client.name = f"{client.name.partition('.')[0]}.{self.tick()}"
        client.position = dict.fromkeys(KEYS, 0)

    def finish(self) -> None:
        """End all transactions and read everything."""
        self.close_transactions()
        operation = self.begin("final", POLL, final=True)
        self.poll(operation, dict.fromkeys(KEYS, 0), 1 << 30)
        self.end(operation)

    def close_transactions(self) -> None:
        for client in self._clients:
            if client.open is not None:
                self.end(client.open)
                client.open = None

    def inject(self, kind: Kind) -> None:
        """Make one anomaly, and no other."""
        self.close_transactions()
        _INJECTIONS[kind](self)

    def sent(self, count: int, key: str = "a") -> list[Operation]:
        """Send values one by one, correctly, from one process."""
        operations = []
        process = f"sender-{self.tick()}"
        for _ in range(count):
            operations.append(self.begin(process, SEND))
            self.send(operations[-1], key)
            self.end(operations[-1])
        return operations

    def ends(self) -> dict[str, int]:
        return {key: len(log) for key, log in self._logs.items()}

    def log(self, key: str) -> list[_Entry]:
        return self._logs[key]

    def polled(self, *polls: list[tuple[int, str]]) -> None:
        """Let a new process poll these records of key `a`, an operation for each list."""
        process = f"reader-{self.tick()}"
        for records in polls:
            operation = self.begin(process, POLL)
            operation.polls.append((self.tick(), {"a": records}))
            self.end(operation)


def _records(sends: list[Operation]) -> list[tuple[int, str]]:
    return [(offset, value) for send in sends for _, value, offset in send.sends if offset is not None]


def _lost_write(broker: SimulatedBroker) -> None:
    lost, _ = broker.sent(2)
    broker.log("a")[_records([lost])[0][0]] = _Entry(None)


def _unseen(broker: SimulatedBroker) -> None:
    # Key "z" is no other client's, so no later value follows.
    operation = broker.begin("sender-z", SEND)
    operation.sends.append(("z", broker.value(), 0))
    broker.end(operation)


def _duplicate(broker: SimulatedBroker) -> None:
    (send,) = broker.sent(1)
    broker.log("a").append(_Entry(_records([send])[0][1], send))


def _unwritten(broker: SimulatedBroker) -> None:
    broker.log("a").append(_Entry("nobody's"))


def _inconsistent_offsets(broker: SimulatedBroker) -> None:
    (one,) = broker.sent(1)
    broker.polled(_records([one]))
    broker.log("a").pop()
    broker.sent(1)


def _aborted_read(broker: SimulatedBroker) -> None:
    operation = broker.begin("aborting", TRANSACTION)
    broker.send(operation, "a")
    broker.end(operation, FAIL)
    broker._aborted.discard(operation)


def _precommitted_read(broker: SimulatedBroker) -> None:
    operation = broker.begin("reading", TRANSACTION)
    position = broker.ends()
    broker.send(operation, "a")
    broker._open.discard(operation)
    broker.poll(operation, position)
    broker.end(operation)


def _early_read(broker: SimulatedBroker) -> None:
    position = broker.ends()
    operation = broker.begin("writing", TRANSACTION)
    broker.send(operation, "a")
    broker._open.discard(operation)
    reader = broker.begin("reading", POLL)
    broker.poll(reader, position)
    broker.end(reader)
    broker.end(operation)


def _cycle(broker: SimulatedBroker) -> None:
    position = broker.ends()
    one, other = broker.begin("one", TRANSACTION), broker.begin("other", TRANSACTION)
    broker.send(one, "a")
    broker.send(other, "b")
    for reader, writer in ((one, other), (other, one)):
        broker._open.discard(writer)
        broker.poll(reader, dict(position))
        broker._open.add(writer)
        # Each has polled its own record, too, which is another anomaly.
        at, records = reader.polls[0]
        own = {value for _, value, _ in reader.sends}
        reader.polls[0] = at, {key: [pair for pair in pairs if pair[1] not in own] for key, pairs in records.items()}
    broker.end(one)
    broker.end(other)


def _internal_nonmonotonic_poll(broker: SimulatedBroker) -> None:
    one, two = _records(broker.sent(2))
    broker.polled([two, one])


def _internal_poll_skip(broker: SimulatedBroker) -> None:
    one, _, three = _records(broker.sent(3))
    broker.polled([one, three])


def _nonmonotonic_poll(broker: SimulatedBroker) -> None:
    one, two = _records(broker.sent(2))
    broker.polled([one, two], [two])


def _poll_skip(broker: SimulatedBroker) -> None:
    one, _, three = _records(broker.sent(3))
    broker.polled([one], [three])


def _swap(broker: SimulatedBroker, one: int, other: int) -> None:
    log = broker.log("a")
    log[one], log[other] = log[other], log[one]


def _internal_nonmonotonic_send(broker: SimulatedBroker) -> None:
    operation = broker.begin("writing", TRANSACTION)
    broker.send(operation, "a")
    broker.send(operation, "a")
    (_, first, low), (_, second, high) = operation.sends
    assert low is not None
    assert high is not None
    _swap(broker, low, high)
    operation.sends = [("a", first, high), ("a", second, low)]
    broker.end(operation)


def _nonmonotonic_send(broker: SimulatedBroker) -> None:
    one, two = broker.sent(2)
    (low, first), (high, second) = _records([one, two])
    _swap(broker, low, high)
    one.sends, two.sends = [("a", first, high)], [("a", second, low)]


_INJECTIONS = {
    Kind.LOST_WRITE: _lost_write,
    Kind.UNSEEN: _unseen,
    Kind.DUPLICATE: _duplicate,
    Kind.UNWRITTEN: _unwritten,
    Kind.INCONSISTENT_OFFSETS: _inconsistent_offsets,
    Kind.ABORTED_READ: _aborted_read,
    Kind.PRECOMMITTED_READ: _precommitted_read,
    Kind.EARLY_READ: _early_read,
    Kind.INTERNAL_NONMONOTONIC_POLL: _internal_nonmonotonic_poll,
    Kind.INTERNAL_POLL_SKIP: _internal_poll_skip,
    Kind.NONMONOTONIC_POLL: _nonmonotonic_poll,
    Kind.POLL_SKIP: _poll_skip,
    Kind.INTERNAL_NONMONOTONIC_SEND: _internal_nonmonotonic_send,
    Kind.NONMONOTONIC_SEND: _nonmonotonic_send,
    Kind.CYCLE: _cycle,
}
