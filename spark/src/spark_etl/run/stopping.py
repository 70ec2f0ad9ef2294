"""The end of a run after a signal: the batch at work finishes, unless the broker or a database does not answer.

Then the batch is given up. Some waits for an answer last minutes, and Spark cannot end them; the end of its JVM does.
The next run repeats the batch, as after the death of a driver at any other moment.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_etl.logs import Log
from spark_etl.signals import Signals

LOOK_SECONDS = 5.0  # a look takes 25 s at most: then an end that the absence holds up takes 30 s


@contextmanager
def watched(signals: Signals, away: Callable[[], str | None], log: Log) -> Iterator[None]:
    """Give the work of the block up, after a signal, once `away` returns why it cannot go on."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            reason = away() if signals.stop.is_set() else None
            if reason is not None and not ended.is_set():
                log.warning("batch given up", reason=reason)
                signals.give_up()
                return

    threading.Thread(target=watch, name="stopping", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
