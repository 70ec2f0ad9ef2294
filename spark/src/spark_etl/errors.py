"""Failures of spark_etl, named for their cause.

EtlError
├── ConfigError      the pipeline file, its schema or a setting is wrong: nothing was started
├── OutputError      the output folder and the checkpoint do not belong together, or another driver holds them
├── AccountingError  records in ≠ records out + dead letters: the batch is not committed
├── RuleError        a rule with `on_violation: fail` met a record that breaks it: the batch is not committed
├── ClusterError     the Kafka cluster is absent or refuses, or a topic does not exist
│   └── IdentityError    the cluster or a topic is not the one that the offsets belong to; no retry helps
└── RunError         Spark or Kafka failed; the text is the root cause, in one line
    ├── DataLossError    records expired before they were read, and the source may not skip them
    ├── TableError       the files of a joined table are not those that the query was planned with; a new plan helps
    ├── SchemasError     records name schemas that are known now; a new plan helps
    ├── PartitionsError  the source has other partitions than the batch that Spark repeats; another trigger helps
    └── StatementError   an expression of the pipeline file fails on a record, at each try
"""


class EtlError(Exception):
    """Root of every failure that this package reports."""


class ConfigError(EtlError):
    pass


class OutputError(EtlError):
    pass


class AccountingError(EtlError):
    pass


class RuleError(EtlError):
    pass


class ClusterError(EtlError):
    pass


class IdentityError(ClusterError):
    pass


class RunError(EtlError):
    transient = False  # whether the same step may work a moment later: a timeout, a lost connection


class DataLossError(RunError):
    pass


class TableError(RunError):
    transient = True


class SchemasError(RunError):
    transient = True


class PartitionsError(RunError):
    pass


class StatementError(RunError):
    pass
