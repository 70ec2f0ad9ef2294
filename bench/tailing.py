"""Many consumers at the end of one topic: each asks for the next records as soon as it has the last answer.

One thread drives them all. It reads the head of each answer and counts the records by their length (all batches are
alike). The kernel discards the records (MSG_TRUNC), so that the broker is measured and not the copying of a consumer.
"""

from __future__ import annotations

import select
import socket
import struct
import time

from raw import fetch_frame, records_position

_FETCH_BYTES = 1 << 20
#: Buffer that Python demands for discarded bytes; the kernel writes nothing into it.
_UNTOUCHED = bytearray(_FETCH_BYTES)


class _Consumer:
    def __init__(self, address: str, topic: str, batch_bytes: int, batch_records: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.offset = 0
        self._topic = topic
        self._batch_bytes, self._batch_records = batch_bytes, batch_records
        #: The answer's length, its head, and the first batch's base offset.
        self._head_bytes = 4 + records_position(topic)
        self._head = bytearray()
        #: Bytes of the answer that have not come yet; -1 while its head is incomplete.
        self._left = -1

    def ask(self) -> None:
        self.socket.sendall(fetch_frame(self._topic, 0, self.offset, _FETCH_BYTES))

    def take(self) -> int:
        """Return the number of records that have come whole."""
        if self._left < 0:
            self._head += self.socket.recv(self._head_bytes - len(self._head))
            if len(self._head) < self._head_bytes:
                return 0
            (error,) = struct.unpack_from(">h", self._head, self._head_bytes - 26)
            if error:
                raise RuntimeError(f"Fetch was answered with error {error}")
            (self._left,) = struct.unpack_from(">i", self._head, self._head_bytes - 4)
        while self._left > 0:
            try:
                got = self.socket.recv_into(_UNTOUCHED, min(self._left, len(_UNTOUCHED)), socket.MSG_TRUNC)
            except BlockingIOError:
                return 0
            if not got:
                raise EOFError("the broker closed the connection")
            self._left -= got
        records: int = (
            struct.unpack_from(">i", self._head, self._head_bytes - 4)[0] // self._batch_bytes * self._batch_records
        )
        self._head.clear()
        self._left = -1
        self.offset += records
        self.ask()
        return records


def tail(address: str, topic: str, consumers: int, batch_bytes: int, batch_records: int, records: int) -> float:
    """Return the seconds from the first record until every consumer has had `records`, from offset 0 on."""
    left = dict.fromkeys(range(consumers), records)
    every = [_Consumer(address, topic, batch_bytes, batch_records) for _ in left]
    poll = select.epoll()
    numbers = {}
    for number, consumer in enumerate(every):
        numbers[consumer.socket.fileno()] = number
        poll.register(consumer.socket.fileno(), select.EPOLLIN)
        consumer.ask()
    began = 0.0
    while left:
        for descriptor, _ in poll.poll():
            number = numbers[descriptor]
            taken = every[number].take()
            began = began or (time.perf_counter() if taken else 0.0)
            if number in left:
                left[number] -= taken
                if left[number] <= 0:
                    del left[number]
    seconds = time.perf_counter() - began
    poll.close()
    for consumer in every:
        consumer.socket.close()
    return seconds
