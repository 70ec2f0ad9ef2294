"""Millrace on one machine: the millrace command, the Broker context manager and the pytest fixture.

    import millrace

    with millrace.Broker(topics="orders:3") as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

Importing the package is cheap (the pytest plugin is imported in every test run); the broker itself is imported when
`Broker` is first named.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know: the import of `typing` costs milliseconds
if TYPE_CHECKING:
    from millrace.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        import gc

        # Objects of an import stay. Searching them for garbage costs a tenth of it.
        collects = gc.isenabled()
        gc.disable()
        try:
            from millrace.broker import Broker
        finally:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation, which is searched last
            if collects:
                gc.enable()
        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
