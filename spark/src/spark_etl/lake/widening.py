"""Numbers of a table that become wider: all rows are written again with the new types, in one commit.

Any reader reads such a table, which is not so after Delta's own widening (a table feature).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.errors import ConfigError
from spark_etl.lake import columns

EXACT_MAX = 2**53  # a double has every integer up to here


def is_needed(table: StructType, wanted: StructType) -> bool:
    """Return whether types of the table have to change, not only columns to be added."""
    try:
        columns.merged(table, wanted)
    except ConfigError:
        return True
    return False


def widened(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Return the rows of a table in types that were merged into its own.

    ConfigError: an integer is too large for a double.
    """
    for name in rows.columns:
        if columns.is_long_to_double(rows.schema[name].dataType, wanted[name].dataType):
            beyond = ~F.col(f"`{name}`").between(-EXACT_MAX, EXACT_MAX)  # mutant: widened-exactly
            if rows.where(beyond).limit(1).count():
                raise ConfigError(f"column {name} has integers beyond {EXACT_MAX}, which a double cannot hold")
    return rows.select(*columns.fitted(wanted, rows.schema))
