"""A program of the ETL that a test kills at one place: `dying_driver.py DEATH COMMAND PIPELINE …`.

DEATH is a JSON object: `{"at": [function, …], "when": …, "batch": 3}`, or `{}` for a run without an end of this kind.
A function is named by its module and class, as in `lake.delta.Transaction.commit`. Each one counts only after a call
of the one before it. The call of the last one is deadly:

    before    the call does nothing, driver and JVM die
    after     the call is done, driver and JVM die
    half      the call gets the first rows of its frame only, then driver and JVM die
    during    the driver dies while its JVM works on the call, and the JVM lives on for a moment

With `batch`, the first function counts from the batch of that number on.
"""

import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from spark_etl import __main__
from spark_etl.checkpoint import batches

HALF = 3  # rows of a frame


def place_of(name: str) -> tuple[Any, str]:
    """Return the module or class that has a function, and the function's own name."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(["spark_etl", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:-1]:
            owner = getattr(owner, part)
        return owner, parts[-1]
    raise ValueError(name)


def number_of(arguments: tuple[Any, ...]) -> int:
    """Return the number of the batch that a call is about."""
    found = [each.batch_id if isinstance(each, batches.BatchPlace) else each for each in arguments]
    return next(each for each in reversed(found) if isinstance(each, int))


class Death:
    """Death at the last of several functions, which are called in turn."""

    def __init__(self, at: list[str], when: str, batch: int | None = None) -> None:
        self._when = when
        self._batch = batch
        self._passed = 0
        self._last = len(at) - 1
        for step, name in enumerate(at):
            owner, function = place_of(name)
            setattr(owner, function, self._stepping(step, getattr(owner, function)))

    def _stepping(self, step: int, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            early = step == 0 and self._batch is not None and number_of(arguments) < self._batch
            if self._passed != step or early:
                return real(*arguments, **named)
            if step < self._last:
                self._passed += 1
                return real(*arguments, **named)
            return self._die(real, arguments, named)

        return called

    def _die(self, real: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._when == "during":
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()
            return real(*arguments, **named)
        if self._when == "half":
            real(*(each.limit(HALF) if isinstance(each, DataFrame) else each for each in arguments), **named)
        elif self._when == "after":
            real(*arguments, **named)
        os.killpg(0, signal.SIGKILL)
        return None


if __name__ == "__main__":
    death = json.loads(sys.argv[1])
    if death:
        Death(**death)
    sys.exit(__main__.main(sys.argv[2:]))
