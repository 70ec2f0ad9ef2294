"""Fixtures of the whole suite, and how `make test` shares it between processes."""

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from service_chassis import logs
from support import late
from support.kafka_broker import apache_kafka
from support.kafka_classes import kafka_classes
from support.loop_guard import guard_loops
from support.spark_session import jars, spark
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["support.hang_guard", "support.part", "support.unsteady"]
__all__ = ["apache_kafka", "jars", "kafka_classes", "spark"]


# How long an example takes is the machine's affair: tests do not measure time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

#: Folders whose test files all go to one worker. One Apache Kafka serves `clients`, one Chromium and one broker serve
#: `console`. A driver of Spark needs both cores and a gigabyte, so only one runs at a time. `make etl` selects them by
#: their marker, and runs two.
_TOGETHER = {
    "tests/clients/": "Apache Kafka",
    "tests/support/test_kafka_broker.py": "Apache Kafka",
    "tests/console/": "Chromium",
    "tests/e2e/": "Spark",
    "tests/unit/spark_etl/": "Spark",
}


class SharedByFile(LoadFileScheduling):
    """pytest -n: a file at a time, in order, to the process that is free; fixtures of a module are made once.

    Most tests wait for a disk, a client or another process: three of them keep two cores busy.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if self.config.getoption("markexpr").startswith("etl "):
            return file
        return next((scope for path, scope in _TOGETHER.items() if file.startswith(path)), file)


_MARKS = re.compile(r"^pytestmark = .*", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of which `-m` selects no test: it would import Spark, or clients."""
    expression = config.getoption("markexpr")
    if not expression or " or " in expression or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    of_all = "".join(_MARKS.findall(text))
    for term in expression.split(" and "):
        name = term.removeprefix("not ")
        if (f"mark.{name}" in of_all) if term != name else (f"mark.{name}" not in text):
            return True
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail the collection of `make test` if it imports what every one of its processes would then have to import."""
    imported = [name for name in late.MODULES if name in sys.modules]
    if imported and all(f"not {name}" in session.config.getoption("markexpr") for name in ("etl", "conformance")):
        raise pytest.UsageError(f"{', '.join(imported)}: import this with support/late.py")


# Programs under test obey ignored signals, which they would get from `nohup make test` and from `make test &`.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SharedByFile:
    return SharedByFile(config, log)


LOOP_GUARD = guard_loops()

#: Event loops of tests: uvloop is that of the broker, gateway and storage, asyncio's that of admin-api and the command
#: line.
_EVENT_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run a test on asyncio's event loop, or on each loop that its marker `event_loops` names."""
    marker = item.get_closest_marker("event_loops")
    return {name: _EVENT_LOOPS[name] for name in (marker.args if marker else ("asyncio",))}


@pytest.fixture(autouse=True)
def _log_configuration_is_put_back() -> Iterator[None]:
    """Restore the log configuration. The thread of another test's broker would otherwise write with the last one."""
    kept, chosen = logs._configuration, dict(logs._configuration.chosen)
    yield
    kept.chosen = chosen
    logs._apply(kept)


@pytest.fixture(autouse=True)
def _event_loops_never_wait(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which an event loop was blocked. The marker `blocks_event_loop` names a reason not to."""
    LOOP_GUARD.fetch()
    yield
    stalls = LOOP_GUARD.fetch()
    if stalls and request.node.get_closest_marker("blocks_event_loop") is None:
        shown = "\n".join(f"blocked for more than {each.blocked_s * 1000:.0f} ms by\n{each.stack}" for each in stalls)
        pytest.fail(f"an event loop was blocked:\n{shown}", pytrace=False)
