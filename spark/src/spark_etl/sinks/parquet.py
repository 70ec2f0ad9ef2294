"""Good rows as Parquet files, once each: the manifest (manifest.py) has the batches, by query id and batch id."""

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.config import ParquetSinkConfig
from spark_etl.errors import AccountingError
from spark_etl.manifest import Manifest


class ParquetSink:
    """Commits one batch of good rows as files of the manifest."""

    def __init__(self, config: ParquetSinkConfig, manifest: Manifest) -> None:
        self._config = config
        self._manifest = manifest

    def write(self, rows: DataFrame, query: str, batch: int, expected: int) -> None:
        staging = self._manifest.staging(query, batch)
        written = Observation()
        (
            rows.repartition(*self._config.partition_by)  # one file per partition folder and batch
            .observe(written, F.count(F.lit(1)).alias("rows"))
            .write.partitionBy(*self._config.partition_by)
            .option("compression", self._config.compression)
            .parquet(str(staging))
        )
        if written.get["rows"] != expected:
            raise AccountingError(f"batch {batch}: {expected} good rows, {written.get['rows']} written")
        self._manifest.commit(query, batch, expected, staging)


def committed_rows(session: SparkSession, manifest: Manifest, schema: StructType) -> DataFrame:
    """Return the rows of the files that the manifest lists, and no others of the folder."""
    files = manifest.files()
    if not files:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).option("basePath", str(manifest.root)).parquet(*files)
