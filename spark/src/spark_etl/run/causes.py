"""Why a query failed, in our terms: the failures of Spark and Kafka name neither the expression nor the topic."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_etl.batch.identity import SourceIdentity
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.config import Pipeline
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
    StatementError,
    TableError,
)
from spark_etl.judgement import Judged
from spark_etl.kafka import sources
from spark_etl.kafka.cluster import Cluster
from spark_etl.letters.failures import blamed, may_be_of_expression, run_error

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
        planned = self.checkpoint.last_planned()  # Spark reads the tables of joins before it gives the batch to us
        return run_error(error) if planned is None else self.of_batch(error, planned)

    def of_batch(self, error: Exception, batch_id: int) -> EtlError:
        """Return the failure of a batch: that of the expression in the file which its records make fail, if one is."""
        start, end = self.checkpoint.start_offsets(batch_id), self.checkpoint.end_offsets(batch_id)
        if not may_be_of_expression(error) or end is None:
            return run_error(error)
        servers = self.cluster.bootstrap_servers
        records = sources.batch(self.session, servers, self.pipeline.config, start or {}, end)
        return blamed(self.session, self.pipeline, records) or run_error(error)
