"""Control records, which brokers write into a partition's log between the records of users.

Key and value each have their version in front, like those of the topics. Of the types only the two that end a
transaction occur in partitions of users' topics; 2 to 6 belong to the log of KRaft's controllers.
"""

from enum import IntEnum

from protocol_lib.schema import Int16, Int32, message


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@message(api_key=None, versions="0", flexible=None)
class ControlRecordKey:
    type: Int16


@message(api_key=None, versions="0", flexible=None)
class EndTransactionMarkerValue:
    """`coordinator_epoch` distinguishes markers of the transaction coordinator from those of its predecessors."""

    coordinator_epoch: Int32
