"""Kafka clients, Spark and schemathesis, imported at their first use: each process of `make test` collects every file.

    from support.late import Late, confluent

    default_records = Late("aiokafka.record.default_records")

    confluent.admin.AdminClient({"bootstrap.servers": bootstrap})   # in a function: this imports confluent_kafka

tests/conftest.py fails a collection that imports one of MODULES.
"""

from __future__ import annotations

import importlib
from typing import Any

MODULES = ("aiokafka", "confluent_kafka", "kafka", "kio", "pandas", "py4j", "pyspark", "schemathesis")


class Late:
    """A module or package that is imported when an attribute is used; an unknown attribute may be a module in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # pytest asks every object of a module for its marks
            raise AttributeError(attribute)
        module = importlib.import_module(self._name)
        try:
            return getattr(module, attribute)
        except AttributeError:
            return importlib.import_module(f"{self._name}.{attribute}")


aiokafka: Any = Late("aiokafka")
confluent: Any = Late("confluent_kafka")
kafka_python: Any = Late("kafka")
