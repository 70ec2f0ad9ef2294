"""Exceptions of the gateway. Kafka error codes are values, not exceptions.

GatewayError
├── ListenerError        a listener cannot be served as its settings say; the text is for the operator
├── RequestRefused       the client broke the protocol: one log line, one count, its connection is closed
├── AnswerTooLarge       the answer would take more memory than one request may
├── StorageUnavailable   storage did not answer in time and the request has no error code to say so
└── SliceGone            a slice's file is gone, is another file by now, or is shorter than the slice
"""


class GatewayError(Exception):
    """Root of this package's exceptions."""


class ListenerError(GatewayError):
    """A listener cannot be served as its settings say."""


class RequestRefused(GatewayError):  # noqa: N818
    """A request that is not answered.

    `reason` is one of a fixed set of words (it is a metric's label); `fields` are the request's api_key, version,
    correlation_id and client_id, as far as they could be read.
    """

    def __init__(self, reason: str, detail: str = "", **fields: object) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.fields = fields


class AnswerTooLarge(GatewayError):  # noqa: N818
    """The answer to a request would take more memory than one request may."""


class StorageUnavailable(GatewayError):  # noqa: N818
    """Storage did not answer in time."""


class SliceGone(GatewayError):  # noqa: N818
    """The bytes a slice names cannot be read from its file any more."""
