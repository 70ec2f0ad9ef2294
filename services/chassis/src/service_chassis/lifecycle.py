"""The life of a service process: start, run until a signal, stop in order within a deadline.

    def main() -> int:
        return lifecycle.main("storage-svc", StorageSettings, serve)

    async def serve(settings: StorageSettings, stop: asyncio.Event) -> None:
        async with ...:
            await stop.wait()

A stop has these steps:

1. SIGTERM, SIGINT or SIGHUP sets the stop event. 2. `serve` closes its resources and returns. 3. At the deadline, or at
a third signal (stop_signals), tasks that still run are cancelled and named in the log. 4. Two seconds later the process
ends. A service of `millrace up` ignores these signals. It stops when its standard input has a byte or ends, so that the
launcher alone decides on the order. That input is a socket, and a failed start writes its reason there.

Exit status: 0 stopped in order · 1 failed, or cut at the deadline · 78 (sysexits' EX_CONFIG) cannot start, and another
try will not help: wrong settings, an address or a data folder in use (`StartError`). A supervisor restarts after 1, not
after 78.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from service_chassis import logs, memory, stall_watch
from service_chassis.settings import ServiceSettings, SettingsError, answer
from service_chassis.stop_signals import StopRequest, StopSignals, handled

START_ERROR_STATUS = 78
#: Longest reason of a failed start that a launcher receives; a socket takes it without a wait.
START_FAULT_BYTES_MAX = 4096
#: Seconds that cancelled tasks have after the deadline before the process ends without them.
_CUT_GRACE_S = 2.0

log = logs.get(__name__)


class StartError(Exception):
    """A wrong set-up that prevents the start; the message is for the operator."""


Settings = TypeVar("Settings", bound=ServiceSettings)


def main(
    service: str,
    settings_class: type[Settings],
    serve: Callable[[Settings, asyncio.Event], Coroutine[Any, Any, None]],
    *,
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    arguments: list[str] | None = None,
    example: str = "",
) -> int:
    """Run a service, from its command line to its exit status. `example`: a command line for --help."""
    if options := sys.argv[1:] if arguments is None else arguments:
        return answer(service, sys.modules[serve.__module__].__doc__ or "", settings_class, example, options)
    try:
        settings = settings_class()
    except SettingsError as error:
        logs.configure(service)
        return _cannot_start(str(error))
    logs.configure(service, settings.log_level, settings.log_format)
    logs.capture_standard_logging()
    _raise_descriptor_limit()
    log.info("starting", settings=settings.shown(changed_only=settings.log_format == "text"))
    return run(
        lambda stop: serve(settings, stop),
        stop_deadline_s=settings.stop_deadline_s,
        stop_on_stdin=settings.stop_on_stdin,
        new_event_loop=new_event_loop,
        stall_file=settings.event_loop_stall_file,
    )


def _raise_descriptor_limit() -> None:
    """Raise the limit of descriptors to the system's: connections and segment files each need one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(
    main: Callable[[asyncio.Event], Awaitable[None]],
    *,
    stop_deadline_s: float = 25.0,
    stop_on_stdin: bool = False,
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    stall_file: str = "",
) -> int:
    """Run `main` in a new event loop until it returns, which it does soon after its stop event is set.

    A `stall_file` gets the stack of the loop's thread at every stall (stall_watch.py).
    """
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner, contextlib.ExitStack() as watched:
            if stall_file:
                watch = stall_watch.StallWatch(runner.get_loop(), stall_watch.append_to_file(stall_file))
                watched.callback(watch.close)
            return runner.run(_supervised(main, stop_deadline_s, stop_on_stdin))
    except StartError as error:
        return _cannot_start(str(error))
    except Exception:
        log.exception("failed")
        return 1


def _cannot_start(reason: str) -> int:
    """Send the reason to the launcher, which reads it from the socket that is this process's standard input.

    A service that no launcher started has no such socket, and logs the reason.
    """
    with contextlib.suppress(OSError):
        if os.environ.get("MILLRACE_STOP_ON_STDIN") == "true" and stat.S_ISSOCK(os.fstat(0).st_mode):
            os.write(0, reason.encode()[:START_FAULT_BYTES_MAX])  # mutant: start-fault-reported
            return START_ERROR_STATUS
    log.error("cannot start", reason=reason)
    return START_ERROR_STATUS


def freeze_start_objects() -> None:
    """Exclude all objects of the start from garbage collection, and search all later ones seldom.

    Call it once, when the service is ready. A start may have collection switched off until then.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    # A full collection takes half a second where clients keep fetch sessions. With Python's last threshold of 10, each
    # hundred requests of a thousand elements cause one. A higher first threshold makes the usual collections long.
    gc.set_threshold(700, 10, 1000)


async def _supervised(
    main: Callable[[asyncio.Event], Awaitable[None]], stop_deadline_s: float, stop_on_stdin: bool
) -> int:
    loop = asyncio.get_running_loop()
    stop, cut = asyncio.Event(), asyncio.Event()
    signals = StopSignals()

    def begin_stop(reason: str) -> None:
        if not stop.is_set():
            log.info("stopping", signal=reason)
            stop.set()
            _end_regardless_after(stop_deadline_s + _CUT_GRACE_S)

    def on_signal(number: int) -> None:
        request = signals.received(number)
        if request is StopRequest.STOP:
            begin_stop(signal.Signals(number).name)
        elif request is StopRequest.AGAIN:
            log.warning("still stopping; the next signal cuts the stop off")
        elif request is StopRequest.KILL:
            cut.set()
            _end_regardless_after(_CUT_GRACE_S)

    for number in handled():
        loop.add_signal_handler(number, on_signal, number)
    if stop_on_stdin:
        _when_stdin_asks(lambda: loop.call_soon_threadsafe(begin_stop, "launcher"))

    async def whole() -> None:
        await main(stop)

    memory.keep_freed_memory()
    memory.give_back_when_idle()
    running = asyncio.create_task(whole(), name="main")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        impatient = asyncio.create_task(cut.wait(), name="cut")
        await asyncio.wait({running, impatient}, timeout=stop_deadline_s, return_when=asyncio.FIRST_COMPLETED)
        impatient.cancel()
    stopped.cancel()
    await asyncio.sleep(0)
    if running.done():
        running.result()
        log.info("stopped")
        return 0
    await _cut(running, "asked three times" if cut.is_set() else f"did not stop within {stop_deadline_s:g} s")
    return 1


def _when_stdin_asks(act: Callable[[], object]) -> None:
    def wait() -> None:
        os.read(0, 1)
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            act()

    threading.Thread(target=wait, name="launcher-watch", daemon=True).start()


async def _cut(running: asyncio.Task[None], reason: str) -> None:
    left = [task for task in asyncio.all_tasks() if task not in (asyncio.current_task(), running)]
    log.error("stop cut off", reason=reason, tasks=sorted(task.get_name() for task in (running, *left)))
    running.cancel()
    await asyncio.wait({running}, timeout=_CUT_GRACE_S)


def _end_regardless_after(seconds: float) -> None:
    """End the process after `seconds`, even if a thread hangs, for example in a sync on a dead disk."""

    def end() -> None:
        log.error("ended while a thread hangs", threads=[thread.name for thread in threading.enumerate()])
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
