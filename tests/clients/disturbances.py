"""A network that is disturbed at random: connections cut, answers or requests lost before the cut, delays.

    async with KafkaProxy(bootstrap) as proxy, disturbed(proxy, random.Random(1)):
        ...

A connection never loses bytes in the middle, as TCP does not: from the first frame that is lost until the cut, all
frames of that direction are lost. Delays and cuts change the order in which a broker gets the requests of different
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from clients.proxy import Action, KafkaProxy
from protocol_lib.api import ApiKey

#: Threads of other clients. The default executor has few, and asyncio resolves names in it.
THREADS = ThreadPoolExecutor(32)
#: Longest time for which frames are lost before the connections are cut, in seconds.
STALL_S = 0.3


class Network:
    """The decisions about each frame of a proxy, and the number of disturbances by kind."""

    def __init__(self, proxy: KafkaProxy, draw: random.Random, stall_s: float) -> None:
        self.kinds: Counter[str] = Counter()
        self._proxy = proxy
        self._draw = draw
        self._stall_s = stall_s
        proxy.request_delay = proxy.answer_delay = self._delay

    def _delay(self, _key: ApiKey) -> float:
        return self._draw.uniform(0, 0.02) if self._draw.random() < 0.05 else 0.0

    async def disturb(self) -> None:
        """Run disturbances until it is cancelled; the network is undisturbed then."""
        try:
            while True:
                await asyncio.sleep(self._draw.uniform(0.02, 0.25))
                kind = self._draw.choice(["cut", "cut on the next", "answers lost", "requests lost"])
                self.kinds[kind] += 1
                await self._disturb_once(kind)
                self._proxy.hang_up()
        finally:
            self._proxy.request_delay = self._proxy.answer_delay = lambda _: 0.0
            self._pass()
            self._proxy.hang_up()

    async def _disturb_once(self, kind: str) -> None:
        if kind == "cut on the next":
            self._proxy.on_request = self._proxy.on_answer = self._drop_sometimes
            await asyncio.sleep(self._draw.uniform(0, self._stall_s))
        elif kind == "answers lost":
            self._proxy.on_answer = lambda _: Action.STALL
            await asyncio.sleep(self._draw.uniform(0, self._stall_s))
        elif kind == "requests lost":
            self._proxy.on_request = lambda _: Action.STALL
            await asyncio.sleep(self._draw.uniform(0, self._stall_s))
        self._pass()

    def _drop_sometimes(self, _key: ApiKey) -> Action:
        return Action.DROP if self._draw.random() < 0.2 else Action.PASS

    def _pass(self) -> None:
        self._proxy.on_request = self._proxy.on_answer = lambda _: Action.PASS


def scaled(full: int) -> int:
    """Return the number of runs of a slow test: the full number times FAULTS_SCALE, at least one."""
    return max(1, round(full * float(os.environ.get("FAULTS_SCALE", "1"))))


@contextlib.asynccontextmanager
async def disturbed(proxy: KafkaProxy, draw: random.Random, *, stall_s: float = STALL_S) -> AsyncIterator[Network]:
    """Run disturbances of a proxy's network during the block."""
    network = Network(proxy, draw, stall_s)
    task = asyncio.create_task(network.disturb())
    try:
        yield network
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
