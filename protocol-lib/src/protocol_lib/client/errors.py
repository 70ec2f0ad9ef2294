"""The exceptions of the client.

    KafkaError                       `retriable` says whether the same call may succeed later
    ├── BrokerError                  a broker answered with an error code, which is its `code`; one subclass per code,
    │                                named after it: NotLeaderOrFollowerError, TopicAlreadyExistsError, …
    ├── ConnectionFailedError        no connection, or it was lost; the request may have been executed   retriable
    ├── ResponseTimeoutError         no answer in time; the request may have been executed               retriable
    ├── InvalidResponseError         the broker's bytes are no valid answer
    │   └── ResponseTooLargeError    the broker announced an answer above `response_bytes_max`, which is not read
    ├── AuthenticationError          the broker refused us, or did not prove its identity
    ├── UnsupportedByBrokerError     the broker serves no version of the API that can carry the request
    ├── DeliveryTimeoutError         the producer gave a record up; it may or may not be in the log
    ├── BufferFullError              the producer's buffer memory was full for too long                  retriable
    ├── NoOffsetError                a partition has no valid position, and auto_offset_reset is "none"
    └── ClientClosedError            the client is closed, or was while this waited

The classes of codes are made from `ErrorCode`; `from protocol_lib.client.errors import TopicAlreadyExistsError` works
for each of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from protocol_lib.errors import ErrorCode, ProtocolError


class KafkaError(ProtocolError):
    """Root of everything the client raises."""

    retriable: ClassVar[bool] = False


class BrokerError(KafkaError):
    """A broker answered with an error code; `about` names the subject, `message` is the broker's text."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, about: str = "", message: str | None = None) -> None:
        super().__init__(": ".join(part for part in (about, self.code.name, message) if part))
        self.about = about
        self.message = message


class ConnectionFailedError(KafkaError):
    retriable = True


class ResponseTimeoutError(KafkaError):
    retriable = True


class InvalidResponseError(KafkaError):
    pass


class ResponseTooLargeError(InvalidResponseError):
    def __init__(self, message: str, start: bytes = b"") -> None:
        super().__init__(message)
        #: The first bytes of the answer, its header included; at most 4 KB.
        self.start = start


class AuthenticationError(KafkaError):
    pass


class UnsupportedByBrokerError(KafkaError):
    pass


class DeliveryTimeoutError(KafkaError):
    pass


class BufferFullError(KafkaError):
    retriable = True


class NoOffsetError(KafkaError):
    pass


class ClientClosedError(KafkaError):
    pass


def _leaf(code: ErrorCode) -> type[BrokerError]:
    words = code.name.removesuffix("_ERROR").removesuffix("_EXCEPTION").split("_")
    name = "".join(word.capitalize() for word in words) + "Error"
    return type(name, (BrokerError,), {"code": code, "retriable": code.is_retriable, "__module__": __name__})


#: The class of each code but NONE.
BY_CODE: Final[Mapping[ErrorCode, type[BrokerError]]] = MappingProxyType(
    {code: _leaf(code) for code in ErrorCode if code is not ErrorCode.NONE}
)
_BY_NAME: Final = {leaf.__name__: leaf for leaf in BY_CODE.values()}


def __getattr__(name: str) -> Any:
    try:
        return _BY_NAME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def broker_error(code: int, about: str = "", message: str | None = None) -> BrokerError:
    """Return the exception for an error code from the wire."""
    return BY_CODE[ErrorCode.of(code)](about, message)


def check(code: int, about: str = "", message: str | None = None) -> None:
    """Raise unless the code is NONE."""
    if code:
        raise broker_error(code, about, message)
