"""Every error admin-api answers, and the two tables that make them from Kafka's codes and from gRPC's.

The body is always `{"error_code": int, "message": str}`, as Confluent's REST Proxy has it:

    400 400     the request is not understood: broken JSON, a value of the wrong type, an unknown field
    400 40002   Kafka's rules refuse it: the topic exists, an illegal name, no partitions, an invalid configuration
    409 40901   the consumer group has members, or reads the topic
    404 404     no such route, cluster, broker, configuration or consumer
    404 40402   no such partition        404 40403   no such topic        404 40405   no such consumer group
    413 413     a body, or a record, is too large    415 415     the body is not JSON
    422 42205   a schema that is none                422 42206   no records
    422 42207   a schema that the registry does not have or refuses, or that cannot be looked up
    422 42208   no batch of records, or not such a one
    500 50002   a fault of ours or of storage
    503 50003   storage is busy with something that passes; try again
    503 50302   storage cannot be reached
    503 50303   the schema registry cannot be reached, or refuses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from service_chassis.grpc_status import RpcError, Status
from service_chassis.http.errors import ApiError, of_status
from starlette.responses import JSONResponse

__all__ = ["ApiError", "of_status"]

UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_MEMBER_ID = 25
GROUP_ID_NOT_FOUND = 69


class _Answer(NamedTuple):
    status: int
    error_code: int
    message: str


_INTERNAL = _Answer(500, 50002, "The server met an unexpected error.")

#: Kafka error codes that callers of admin-api can meet; every other one is answered as _INTERNAL.
_KAFKA: Mapping[int, _Answer] = {
    1: _Answer(400, 40002, "The offset is not within the range of offsets of the partition."),
    UNKNOWN_TOPIC_OR_PARTITION: _Answer(404, 40403, "This server does not host this topic-partition."),
    5: _Answer(503, 50003, "There is no leader for this topic-partition as we are in the middle of an election."),
    6: _Answer(503, 50003, "This server is not the leader for that topic-partition."),
    7: _Answer(503, 50003, "The request timed out."),
    10: _Answer(413, 413, "The request included a message larger than the max message size the server will accept."),
    14: _Answer(503, 50003, "The coordinator is loading and hence can't process requests."),
    15: _Answer(503, 50003, "The coordinator is not available."),
    16: _Answer(503, 50003, "This is not the correct coordinator."),
    19: _Answer(503, 50003, "Messages are rejected since there are fewer in-sync replicas than required."),
    20: _Answer(503, 50003, "Messages are written to the log, but to fewer in-sync replicas than required."),
    17: _Answer(400, 40002, "The request attempted to perform an operation on an invalid topic."),
    UNKNOWN_MEMBER_ID: _Answer(409, 40901, "The consumer group has members: stop them first."),
    33: _Answer(400, 40002, "The broker has no such SASL mechanism."),
    24: _Answer(400, 40002, "The configured groupId is invalid."),
    29: _Answer(403, 40301, "Topic authorization failed."),
    30: _Answer(403, 40301, "Group authorization failed."),
    31: _Answer(403, 40301, "Cluster authorization failed."),
    32: _Answer(400, 40002, "The timestamp of the message is out of acceptable range."),
    36: _Answer(400, 40002, "Topic with this name already exists."),
    37: _Answer(400, 40002, "Number of partitions is below 1."),
    38: _Answer(400, 40002, "Replication factor is below 1 or larger than the number of available brokers."),
    39: _Answer(400, 40002, "Replica assignment is invalid."),
    40: _Answer(400, 40002, "Configuration is invalid."),
    42: _Answer(400, 40002, "The request is not one that Kafka accepts."),
    44: _Answer(400, 40002, "Request parameters do not satisfy the configured policy."),
    53: _Answer(403, 40301, "Transactional Id authorization failed."),
    56: _Answer(503, 50003, "Disk error when trying to access log file on the disk."),
    68: _Answer(409, 40901, "The consumer group is not empty: stop its members first."),
    GROUP_ID_NOT_FOUND: _Answer(404, 40405, "Consumer group id not found."),
    **dict.fromkeys((45, 46, 47, 59, 90), _Answer(503, 50003, "The broker has forgotten the producer; try again.")),
    73: _Answer(400, 40002, "Topic deletion is disabled."),
    86: _Answer(409, 40901, "The consumer group reads this topic: stop its members first."),
    87: _Answer(400, 40002, "This record has failed the validation on the broker and hence be rejected."),
    91: _Answer(404, 404, "There is no such resource."),
    92: _Answer(400, 40002, "The request names a resource twice."),
    93: _Answer(400, 40002, "The credential is not acceptable."),
    100: _Answer(404, 40403, "This server does not host this topic ID."),
}

_RPC: Mapping[Status, _Answer] = {
    Status.UNAVAILABLE: _Answer(503, 50302, "Storage cannot be reached."),
    Status.FAILED_PRECONDITION: _Answer(503, 50302, "Storage is of another release."),
    Status.DEADLINE_EXCEEDED: _Answer(503, 50003, "Storage did not answer in time."),
    Status.RESOURCE_EXHAUSTED: _Answer(503, 50003, "Storage is overloaded."),
    Status.CANCELLED: _Answer(503, 50003, "The request to storage was cancelled."),
}


def check(kafka_code: int, message: str = "") -> None:
    """Raise the answer to a Kafka error code; 0 is success."""
    if (error := refusal(kafka_code, message)) is not None:
        raise error


def refusal(kafka_code: int, message: str = "") -> ApiError | None:
    """Return the answer to a Kafka error code, None for 0. A message from storage wins over the table's."""
    if kafka_code == 0:
        return None
    answer = _KAFKA.get(kafka_code, _INTERNAL)
    own_words = message if answer is not _INTERNAL else ""
    return ApiError(answer.status, answer.error_code, own_words or answer.message)


def from_rpc(error: RpcError) -> ApiError:
    """Return the answer to a gRPC call that failed. The peer's text stays in the log."""
    return ApiError(*_RPC.get(error.status, _INTERNAL))


def no_such_path() -> ApiError:
    """Return the error for a path that leads nowhere."""
    return not_found(
        "There is no such path. Paths begin with /v3/clusters (or /kafka/v3/clusters) and /api/v1; /docs lists them."
        " Others are /, /healthz, /readyz, /metrics, /openapi.json and /version."
    )


def not_found(message: str) -> ApiError:
    return ApiError(404, 404, message)


def refused(message: str) -> ApiError:
    """Return the error for a request that Kafka's rules refuse."""
    return ApiError(400, 40002, message)


def partition_not_found() -> ApiError:
    return ApiError(404, 40402, "Partition not found.")


def group_not_found() -> ApiError:
    answer = _KAFKA[GROUP_ID_NOT_FOUND]
    return ApiError(*answer)


def registry_away(message: str) -> ApiError:
    return ApiError(503, 50303, message)


def has_members(message: str) -> ApiError:
    return ApiError(409, 40901, message)


def busy() -> ApiError:
    """Return the error for a server that has too much to do."""
    return ApiError(503, 50003, "The server is busy; try again.", {"retry-after": "1"})


def internal_error() -> ApiError:
    return ApiError(*_INTERNAL)


def rendered(error: ApiError) -> JSONResponse:
    """Return the answer to an error."""
    body = {"error_code": error.error_code, "message": error.message}
    return JSONResponse(body, error.status_code, error.headers)
