"""The two tables: Kafka error codes and gRPC status codes to answers."""

import pytest
from admin_api import errors
from protocol_lib.errors import ErrorCode
from service_chassis.grpc_status import RpcError, Status


@pytest.mark.parametrize(
    ("name", "status", "error_code"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", 404, 40403),
        ("UNKNOWN_TOPIC_ID", 404, 40403),
        ("GROUP_ID_NOT_FOUND", 404, 40405),
        ("TOPIC_ALREADY_EXISTS", 400, 40002),
        ("INVALID_TOPIC_EXCEPTION", 400, 40002),
        ("INVALID_PARTITIONS", 400, 40002),
        ("INVALID_REPLICATION_FACTOR", 400, 40002),
        ("INVALID_REPLICA_ASSIGNMENT", 400, 40002),
        ("INVALID_CONFIG", 400, 40002),
        ("INVALID_REQUEST", 400, 40002),
        ("INVALID_GROUP_ID", 400, 40002),
        ("POLICY_VIOLATION", 400, 40002),
        ("TOPIC_DELETION_DISABLED", 400, 40002),
        ("TOPIC_AUTHORIZATION_FAILED", 403, 40301),
        ("GROUP_AUTHORIZATION_FAILED", 403, 40301),
        ("CLUSTER_AUTHORIZATION_FAILED", 403, 40301),
        ("LEADER_NOT_AVAILABLE", 503, 50003),
        ("NOT_LEADER_OR_FOLLOWER", 503, 50003),
        ("REQUEST_TIMED_OUT", 503, 50003),
        ("COORDINATOR_LOAD_IN_PROGRESS", 503, 50003),
        ("COORDINATOR_NOT_AVAILABLE", 503, 50003),
        ("NOT_COORDINATOR", 503, 50003),
        ("KAFKA_STORAGE_ERROR", 503, 50003),
        ("UNKNOWN_SERVER_ERROR", 500, 50002),
        ("CORRUPT_MESSAGE", 500, 50002),
        ("MESSAGE_TOO_LARGE", 413, 413),
        ("NOT_ENOUGH_REPLICAS", 503, 50003),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", 503, 50003),
        ("INVALID_TIMESTAMP", 400, 40002),
        ("INVALID_RECORD", 400, 40002),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 503, 50003),
        ("UNKNOWN_PRODUCER_ID", 503, 50003),
    ],
)
def test_kafka_codes(name: str, status: int, error_code: int) -> None:
    with pytest.raises(errors.ApiError) as raised:
        errors.check(int(ErrorCode[name]))
    assert (raised.value.status_code, raised.value.error_code) == (status, error_code)
    assert raised.value.message


def test_success_raises_nothing() -> None:
    errors.check(0, "ignored")


def test_storages_own_words_win() -> None:
    with pytest.raises(errors.ApiError) as raised:
        errors.check(36, "Topic 'orders' already exists.")
    assert raised.value.message == "Topic 'orders' already exists."


@pytest.mark.parametrize("code", [-1, 9999])
def test_words_about_unexpected_errors_stay_inside(code: int) -> None:
    with pytest.raises(errors.ApiError) as raised:
        errors.check(code, "sqlite3.OperationalError: near /var/lib/millrace")
    assert raised.value.message == "The server met an unexpected error."


@pytest.mark.parametrize(
    ("code", "status", "error_code"),
    [
        (Status.UNAVAILABLE, 503, 50302),
        (Status.DEADLINE_EXCEEDED, 503, 50003),
        (Status.RESOURCE_EXHAUSTED, 503, 50003),
        (Status.CANCELLED, 503, 50003),
        (Status.INTERNAL, 500, 50002),
        (Status.UNKNOWN, 500, 50002),
        (Status.UNIMPLEMENTED, 500, 50002),
    ],
)
def test_rpc_codes(code: Status, status: int, error_code: int) -> None:
    failed = RpcError(code, "/var/lib/millrace")
    answer = errors.from_rpc(failed)
    assert (answer.status_code, answer.error_code) == (status, error_code)
    assert "/var/lib" not in answer.message
