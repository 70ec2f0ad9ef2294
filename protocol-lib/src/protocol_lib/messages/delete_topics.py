"""DeleteTopics (20): by name, from version 6 by name or id.

4 is flexible, 5 answers with error messages.
"""

from protocol_lib.schema import ZERO_UUID, Int16, Int32, Uuid, message, struct, wire


@struct
class DeleteTopicState:
    #: null to delete by id
    name: str | None = wire(default=None)
    topic_id: Uuid = wire(default=ZERO_UUID)


@message(api_key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = wire("6+", default=())
    topic_names: tuple[str, ...] = wire("0-5", default=())
    #: longest time that the controller waits until the topics are gone
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: str | None = wire(nullable="6+")
    topic_id: Uuid = wire("6+", default=ZERO_UUID)
    error_code: Int16
    error_message: str | None = wire("5+", default=None)


@message(api_key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = wire("1+", default=0)
    responses: tuple[DeletableTopicResult, ...]
