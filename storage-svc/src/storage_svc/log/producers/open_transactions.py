"""Which transactions hold back a partition's last stable offset.

    offset        0         10        20        30        40
    producer 1    data ... data ....................................     open since 0
    producer 2              data ...  abort(25)                          ended: undecided until 25 is below the high
                                                                         watermark

The last stable offset is the lowest first offset of all open transactions, and of ended ones whose marker can still be
lost. Without any it is the high watermark.
"""

from __future__ import annotations


class OpenTransactions:
    """The open transactions of one log, owned by its ProducerState. `take_back` undoes each `begin` since the last
    `keep`.
    """

    __slots__ = ("_begun", "_ended", "_open")

    def __init__(self) -> None:
        #: producer id -> first offset; in order of offsets, as transactions begin at the end of the log.
        self._open: dict[int, int] = {}
        self._begun: list[int] = []
        self._ended: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Begin the producer's transaction with a batch that is about to be written at this offset."""
        self._open[producer_id] = first_offset
        self._begun.append(producer_id)

    def keep(self) -> None:
        """Keep the transactions that began: their batches are written."""
        if self._begun:
            self._begun.clear()

    def take_back(self) -> None:
        """Forget the transactions that began since the last `keep`: their batches were not written."""
        for producer_id in self._begun:
            del self._open[producer_id]
        self._begun.clear()

    def restore(self, firsts: dict[int, int]) -> None:
        """Replace the open transactions by these: producer id -> first offset."""
        self._open = dict(sorted(firsts.items(), key=lambda item: item[1]))
        self._ended.clear()

    def stable_without(self, producer_id: int, marker_offset: int) -> int:
        """Return the last stable offset once this producer's transaction has ended with the marker at that offset."""
        others = (first for other, first in self._open.items() if other != producer_id)
        return next(others, marker_offset + 1)

    def end(self, producer_id: int, marker_offset: int) -> None:
        """End the producer's transaction: the marker at that offset is written."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None:
            self._ended.append((first_offset, marker_offset))

    def first_undecided(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is not decided for good; None without any."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        first = next(iter(self._open.values()), None)
        if self._ended:
            ended = min(ended[0] for ended in self._ended)
            return ended if first is None else min(first, ended)
        return first
