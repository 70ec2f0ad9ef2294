"""Why a query failed, in our terms: the failures of Spark and Kafka name neither the expression nor the topic."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_etl.batch.identity import SourceIdentity
from spark_etl.checkpoint import state_steps
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.config import Pipeline
from spark_etl.decode import frames
from spark_etl.errors import (
    AccountingError,
    ClusterError,
    ConfigError,
    DataLossError,
    EtlError,
    IdentityError,
    OutputError,
    PartitionsError,
    RuleError,
    SchemasError,
    StatementError,
    TableError,
)
from spark_etl.judgement import Judged
from spark_etl.kafka import sources
from spark_etl.kafka.cluster import Cluster
from spark_etl.letters.failures import blamed, may_be_of_expression, run_error
from spark_etl.reasons import reason
from spark_etl.registry import pins

#: Failures that no retry mends.
FINAL = (ConfigError, OutputError, AccountingError, RuleError, IdentityError, DataLossError, StatementError)


@dataclass(frozen=True)
class Causes:
    session: SparkSession
    pipeline: Pipeline
    cluster: Cluster
    checkpoint: Checkpoint

    def of_query(self, error: Exception, identity: SourceIdentity, plan: Judged | None) -> Exception:
        """Return why a query ended: a topic that was created again shows in Spark as lost data.

        Spark's error names neither the topic that is gone nor the broker that does not answer.
        """
        try:
            identity.check()
        except IdentityError as changed:
            return changed
        except ClusterError as absent:
            if not isinstance(error, (*FINAL, PartitionsError)):
                return absent
        except EtlError:
            pass
        if isinstance(error, EtlError):
            return error
        try:
            if plan is not None:
                plan.check_tables()
        except TableError as changed:  # Spark's error is of a part of a table
            return changed
        learned = self.learned(error)
        if learned is not None:
            return learned
        planned = self.checkpoint.last_planned()  # Spark reads the tables of joins before it gives the batch to us
        return run_error(error) if planned is None else self.of_batch(error, planned)

    def of_batch(self, error: Exception, batch_id: int) -> EtlError:
        """Return the failure of a batch: that of the expression in the file which its records make fail, if one is."""
        learned = self.learned(error)
        if learned is not None:
            return learned
        start, end = self.checkpoint.start_offsets(batch_id), self.checkpoint.end_offsets(batch_id)
        if not may_be_of_expression(error) or end is None:
            return run_error(error)
        servers = self.cluster.bootstrap_servers
        records = sources.batch(self.session, servers, self.pipeline.config, start or {}, end)
        return blamed(self.session, self.pipeline, records) or run_error(error)

    def learned(self, error: Exception) -> EtlError | None:
        """Look up the schemas of a batch that failed for a new one. None: it did not; SchemasError: a new plan helps.

        Queries of windows have batches of their own.
        """
        if not self.pipeline.writers or frames.UNKNOWN not in reason(error):
            return None
        places = state_steps.window_locations(self.pipeline, self.checkpoint)
        parts, new = list(self.pipeline.writers.items()), 0
        try:
            for checkpoint in (self.checkpoint, *map(self.checkpoint.beside, places)):
                records = self._planned(checkpoint)
                if records is not None:
                    new += sum(writers.learn(frames.heads(records, part)) for part, writers in parts)
        except EtlError as absent:
            return absent
        except Exception as failure:
            return run_error(failure)
        if not new:
            return None
        pins.keep(self.pipeline, self.checkpoint.notes)
        return SchemasError(f"{new} schemas of records were looked up")

    def _planned(self, checkpoint: Checkpoint) -> DataFrame | None:
        """Return the records of the last batch that Spark has planned; None if there is none."""
        planned = checkpoint.last_planned()
        end = None if planned is None else checkpoint.end_offsets(planned)
        if planned is None or end is None:
            return None
        start = checkpoint.start_offsets(planned) or {}
        return sources.batch(self.session, self.cluster.bootstrap_servers, self.pipeline.config, start, end)
