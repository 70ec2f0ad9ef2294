"""Several gateway processes on the same ports, so that a container uses its processors. To clients they are one broker.

    gateway-svc                  binds the ports, answers /metrics, /healthz and /readyz, starts its workers again
      python -m gateway_svc      a worker: a whole gateway, under the same name, which listens with SO_REUSEPORT
      …

The kernel spreads connections over the workers. A worker that dies loses its own connections alone and is started
again after 0.1 s. The wait doubles with each early death, up to 5 s. One that cannot start (status 78) ends them all.

`/readyz` is 200 when every worker is ready, `/healthz` when no worker's event loop is stuck. `/metrics` has the
metrics of all workers, with a label `worker`. The memory limit is divided among them, other limits apply to each.

The parent serves no client. Its sockets never listen: they keep the ports while a worker is away. Standard input of a
worker is a pipe from the parent, and it stops in order when the pipe closes, also if the parent was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from service_chassis import lifecycle, logs
from service_chassis.address import Address, Listener, parse_listeners
from service_chassis.health import Health, HttpEndpoint
from service_chassis.probe import check, listens

from gateway_svc.clients.listeners import bind
from gateway_svc.settings import GatewaySettings

_RESTART_DELAY_FIRST_S: Final = 0.1
_RESTART_DELAY_MAX_S: Final = 5.0
#: Seconds after which a death counts as a first one.
_STABLE_AFTER_S: Final = 10.0
#: Seconds within which the workers stop before the parent is cut off.
_STOP_MARGIN_S: Final = 1.0
_PROBE_TIMEOUT_S: Final = 1.0
_MEMORY_MIN: Final = 1 << 20

log = logs.get(__name__)


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Run the workers until the stop event is set, then stop them in order.

    Raises:
        StartError: a port is in use, or a worker cannot start.
    """
    with contextlib.ExitStack() as held:
        try:
            listeners = _reserve_listeners(settings, held)
            workers = [
                _Worker(number, _reserve_http(held), settings, listeners)
                for number in range(1, settings.gateway_workers + 1)
            ]
        except OSError as error:
            raise lifecycle.StartError(str(error)) from error
        health = _Health(workers)
        held.callback(health.watch_loop())
        if settings.gateway_http:
            held.callback(HttpEndpoint(settings.gateway_http, _Metrics(workers), health).start().close)
        health.set_ready(True)
        log.info("workers", listeners=listeners, workers=len(workers))
        await _run(workers, stop)


async def _run(workers: Sequence[_Worker], stop: asyncio.Event) -> None:
    kept = {asyncio.create_task(worker.keep(), name=f"worker {worker.number}") for worker in workers}
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        done, _ = await asyncio.wait({*kept, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in done & kept:
            task.result()
    finally:
        stopping.cancel()
        try:
            await asyncio.gather(*(worker.stop() for worker in workers))
        finally:
            for worker in workers:
                worker.kill()
            for task in kept:
                task.cancel()
            await asyncio.wait(kept)


def _reserve_listeners(settings: GatewaySettings, held: contextlib.ExitStack) -> str:
    """Bind every listener's port for as long as the parent runs; return the listeners with the ports that were bound.

    Raises:
        OSError: an address cannot be bound.
    """
    reserved = []
    for listener in parse_listeners(settings.listeners):
        if not settings.reuse_port:
            # A port that another service shares would have its clients here, and ours there.
            for each in bind(listener, reuse_port=False):
                each.close()
        sockets = bind(listener, reuse_port=True)
        for each in sockets:
            held.callback(each.close)
        port = sockets[0].getsockname()[1]
        reserved.append(Listener(listener.name, Address(listener.address.host, port)))
    return ",".join(map(str, reserved))


def _reserve_http(held: contextlib.ExitStack) -> str:
    (bound,) = bind(Listener("HTTP", Address("127.0.0.1", 0)), reuse_port=False)
    held.callback(bound.close)
    return str(Address("127.0.0.1", bound.getsockname()[1]))


class _Worker:
    """One worker process, owned by the parent's event loop."""

    def __init__(self, number: int, http: str, settings: GatewaySettings, listeners: str) -> None:
        self.number = number
        #: The address of its /metrics, /healthz and /readyz, for the parent alone.
        self.http = http
        self._settings = {
            "MILLRACE_GATEWAY_WORKERS": "1",
            "MILLRACE_GATEWAY_HTTP": http,
            "MILLRACE_GATEWAY_NAME": settings.name,
            "MILLRACE_GATEWAY_MEMORY_BYTES": str(
                max(_MEMORY_MIN, settings.gateway_memory_bytes // settings.gateway_workers)
            ),
            "MILLRACE_LISTENERS": listeners,
            "MILLRACE_REUSE_PORT": "true",
            "MILLRACE_STOP_DEADLINE_S": str(
                max(settings.stop_deadline_s / 2, settings.stop_deadline_s - _STOP_MARGIN_S)
            ),
            "MILLRACE_STOP_ON_STDIN": "true",
        }
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def keep(self) -> None:
        """Start the process, and again whenever it dies, until `stop`.

        Raises:
            StartError: another try would not help.
        """
        clock = asyncio.get_running_loop().time
        delay_s = _RESTART_DELAY_FIRST_S
        while not self._stopping:
            began = clock()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "gateway_svc",
                env={**os.environ, **self._settings},
                stdin=asyncio.subprocess.PIPE,
            )
            pid, status = self._process.pid, await self._process.wait()
            self._process = None
            if self._stopping:
                return
            if status == lifecycle.START_ERROR_STATUS:
                raise lifecycle.StartError(f"worker {self.number} cannot start; its log line says why")
            if clock() - began >= _STABLE_AFTER_S:
                delay_s = _RESTART_DELAY_FIRST_S
            log.error("worker ended", worker=self.number, pid=pid, status=status, restart_in_s=delay_s)
            await asyncio.sleep(delay_s)  # mutant: worker-restarted
            delay_s = min(2 * delay_s, _RESTART_DELAY_MAX_S)

    async def stop(self) -> None:
        """Let the process stop in order, and wait until it has."""
        self._stopping = True
        if (process := self._process) is not None:
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()

    def kill(self) -> None:
        """End the process at once, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def fault(self) -> str | None:
        """Return the reason why the worker is not ready, None if it is."""
        return check(self.http, timeout_s=_PROBE_TIMEOUT_S)

    def is_stuck(self) -> bool:
        """Return whether the worker listens and does not say that its event loop turns."""
        return (
            listens(self.http, timeout_s=_PROBE_TIMEOUT_S)
            and check(self.http, "/healthz", timeout_s=_PROBE_TIMEOUT_S) is not None
        )


class _Health(Health):
    """The health of the parent and of all workers."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        super().__init__()
        self._workers = workers
        self.checks |= {f"worker {worker.number}": worker.fault for worker in workers}

    def is_live(self) -> bool:
        return super().is_live() and not any(worker.is_stuck() for worker in self._workers)


class _Metrics:
    """The metrics of all workers, each with the worker's number as a label."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for worker in self._workers:
            for family in text_string_to_metric_families(_scraped(worker.http)):
                whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                whole.samples += [each._replace(labels=_labelled(each.labels, worker)) for each in family.samples]
        yield from families.values()


def _labelled(labels: Mapping[str, str], worker: _Worker) -> dict[str, str]:
    return {**labels, "worker": str(worker.number)}


def _scraped(address: str) -> str:
    """Return a worker's metrics; none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=_PROBE_TIMEOUT_S) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text
