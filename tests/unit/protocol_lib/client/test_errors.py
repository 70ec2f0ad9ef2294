"""The exceptions of the client: one per error code, and which of them may pass."""

import subprocess

import pytest
from protocol_lib.client import errors
from protocol_lib.client.errors import BY_CODE, BrokerError, KafkaError, broker_error, check
from protocol_lib.errors import ErrorCode
from support.kafka_broker import HEAP, JVM, libraries, need_java

#: Attributes of each code in Java's client.
ERRORS_OF_JAVA = """
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.protocol.Errors;
public class Main {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            Exception exception = error.exception();
            System.out.println(error.code() + " " + error.name() + " " + (exception instanceof RetriableException)
                + " " + (exception instanceof InvalidMetadataException));
        }
    }
}
"""


def test_every_code_has_a_class_of_its_own():
    assert set(BY_CODE) == set(ErrorCode) - {ErrorCode.NONE}
    assert len({leaf.__name__ for leaf in BY_CODE.values()}) == len(BY_CODE)
    for code, leaf in BY_CODE.items():
        assert issubclass(leaf, BrokerError)
        assert (leaf.code, leaf.retriable) == (code, code.is_retriable)
        assert getattr(errors, leaf.__name__) is leaf


def test_an_error_says_what_happened_to_what():
    fault = broker_error(6, "orders-0", "moved")
    assert type(fault).__name__ == "NotLeaderOrFollowerError"
    assert str(fault) == "orders-0: NOT_LEADER_OR_FOLLOWER: moved"
    assert fault.retriable
    assert isinstance(broker_error(9999), errors.UnknownServerError)


def test_check_raises_for_every_code_but_none():
    check(0, "orders")
    with pytest.raises(errors.TopicAlreadyExistsError, match="orders"):
        check(36, "orders")


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="NoSuchError"):
        errors.NoSuchError  # noqa: B018


def test_only_what_may_pass_is_retriable():
    leaves = KafkaError.__subclasses__()
    assert sorted(leaf.__name__ for leaf in leaves if leaf.retriable) == [
        "BufferFullError",
        "ConnectionFailedError",
        "ResponseTimeoutError",
    ]


def test_retriable_is_what_java_says(tmp_path):
    need_java()
    source = tmp_path / "Main.java"
    source.write_text(ERRORS_OF_JAVA)
    command = [*JVM, HEAP, "-cp", libraries(), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    theirs = {}
    for line in done.stdout.splitlines():
        code, name, retriable, stale = line.split()
        theirs[ErrorCode(int(code))] = (name, retriable == "true", stale == "true")
    assert len(theirs) > 130
    assert theirs == {code: (code.name, code.is_retriable, code.means_stale_metadata) for code in theirs}
