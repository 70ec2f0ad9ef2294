"""The plans of a run's queries: the records of the source as a stream, decoded and judged.

The first plan shows whether the pipeline file is right, before a broker is asked. The first query uses it, since a plan
takes up to half a second: unless the source begins elsewhere by then, or there is a join, whose files may have been
exchanged. Every later query has its own plan.
"""

import json

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_etl import judgement
from spark_etl.checkpoint.offsets import Offsets
from spark_etl.config import Pipeline
from spark_etl.errors import ConfigError
from spark_etl.judgement import Judged
from spark_etl.kafka import sources
from spark_etl.kafka.cluster import Cluster
from spark_etl.query.byte_limit import ByteLimit, observed
from spark_etl.reasons import reason
from spark_etl.sinks.plans import check_plans


class StreamPlans:
    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        cluster: Cluster,
        limit: ByteLimit | None,
    ) -> None:
        """Plan for a run that may change `limit` between two queries."""
        self._session = session
        self._pipeline = pipeline
        self._config = pipeline.config
        self._cluster = cluster
        self._limit = limit
        self._first: tuple[dict[str, str], Judged] | None = None  # with the options of its source

    def check(self) -> StructType:
        """Plan the pipeline and its outputs, and return the schema of good rows. Raises ConfigError."""
        try:
            options = self._options(None)
            plan = self._plan(options)
            check_plans(self._pipeline, plan)
            schema: StructType = plan.good(plan.rows).schema
        except PySparkException as error:
            raise ConfigError(f"pipeline {self._config.name}: {reason(error)}") from error
        if not self._config.join:
            self._first = options, plan
        return schema

    def next(self, start: Offsets | None) -> Judged:
        """Return the plan of the next query; `start` are the offsets at which it begins again, None if it does not."""
        options, first = self._options(start), self._first
        self._first = None
        return first[1] if first is not None and first[0] == options else self._plan(options)

    def _plan(self, options: dict[str, str]) -> Judged:
        records = self._session.readStream.format("kafka").options(**options).load()
        if self._limit is not None or self._config.takes_away:
            records = observed(records, sizes=self._limit is not None)
        return judgement.plan(self._session, records, self._pipeline)

    def _options(self, start: Offsets | None) -> dict[str, str]:
        """Return the options of the source, which hold secrets."""
        options = sources.options(self._cluster.bootstrap_servers, self._config.source, self._config.kafka)
        if start is not None:
            options = {name: value for name, value in options.items() if not name.startswith("starting")}
            options["startingOffsets"] = json.dumps(start)
        if self._limit is not None:
            options["maxOffsetsPerTrigger"] = str(self._limit.records)
        return options
