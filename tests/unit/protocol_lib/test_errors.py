"""Kafka's error codes: numbers and names as its clients know them."""

from protocol_lib.errors import ErrorCode
from support.late import kafka_python


def test_codes_are_unique_and_without_gaps():
    assert [code.value for code in ErrorCode] == list(range(-1, 137))


#: Codes for which kafka-python has kept older names than Kafka's.
OLDER_NAMES = {-1, 0, 6, 10, 17, 39}


def test_codes_are_what_kafka_python_calls_them():
    theirs = {
        cls.errno: cls.message
        for cls in vars(kafka_python.errors).values()
        if isinstance(cls, type) and isinstance(getattr(cls, "errno", None), int)
    }
    assert len(theirs) > 80
    assert {code for code, name in theirs.items() if ErrorCode(code).name != name} == OLDER_NAMES


def test_the_ones_everybody_sends():
    assert {name: ErrorCode[name].value for name in (
        "NONE", "UNKNOWN_SERVER_ERROR", "OFFSET_OUT_OF_RANGE", "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "MESSAGE_TOO_LARGE", "INVALID_TOPIC_EXCEPTION",
        "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "UNSUPPORTED_VERSION",
        "TOPIC_ALREADY_EXISTS", "OUT_OF_ORDER_SEQUENCE_NUMBER", "KAFKA_STORAGE_ERROR", "MEMBER_ID_REQUIRED",
        "FENCED_INSTANCE_ID", "INVALID_RECORD", "PRODUCER_FENCED", "UNKNOWN_TOPIC_ID", "REBOOTSTRAP_REQUIRED",
    )} == {
        "NONE": 0, "UNKNOWN_SERVER_ERROR": -1, "OFFSET_OUT_OF_RANGE": 1, "CORRUPT_MESSAGE": 2,
        "UNKNOWN_TOPIC_OR_PARTITION": 3, "NOT_LEADER_OR_FOLLOWER": 6, "REQUEST_TIMED_OUT": 7, "MESSAGE_TOO_LARGE": 10,
        "INVALID_TOPIC_EXCEPTION": 17, "ILLEGAL_GENERATION": 22, "UNKNOWN_MEMBER_ID": 25, "REBALANCE_IN_PROGRESS": 27,
        "UNSUPPORTED_VERSION": 35, "TOPIC_ALREADY_EXISTS": 36, "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
        "KAFKA_STORAGE_ERROR": 56, "MEMBER_ID_REQUIRED": 79, "FENCED_INSTANCE_ID": 82, "INVALID_RECORD": 87,
        "PRODUCER_FENCED": 90, "UNKNOWN_TOPIC_ID": 100, "REBOOTSTRAP_REQUIRED": 129,
    }  # fmt: skip


def test_codes_of_the_future_are_unknown_server_errors():
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
