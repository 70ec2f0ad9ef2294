"""Requests and responses are distinguished, and a response is read as the answer to its request."""

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.codec import encode
from protocol_lib.dump.conversation import Request, Response, Unknown, understand
from protocol_lib.dump.stream import Connection, Piece, Side
from protocol_lib.headers import RequestHeader, encode_request_header, encode_response_header
from protocol_lib.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.produce import ProduceRequest

BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
BEATEN = HeartbeatResponse(throttle_time_ms=0, error_code=27)


def request(message, key, version, correlation_id):
    return encode_request_header(RequestHeader(key, version, correlation_id, "c")) + encode(message, version)


def response(message, key, version, correlation_id):
    return encode_response_header(key, version, correlation_id) + encode(message, version)


def framed(*frames):
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def said(*pieces, whole=False):
    return list(understand(Connection("", [Piece(*piece) for piece in pieces], whole=whole)))


ASKED = request(BEAT, ApiKey.HEARTBEAT, 4, 7)
ANSWERED = response(BEATEN, ApiKey.HEARTBEAT, 4, 7)


@pytest.mark.parametrize("sides", [(Side.CLIENT, Side.BROKER), (Side.UNKNOWN, Side.UNKNOWN)])
def test_a_response_is_read_as_the_answer_to_its_request(sides):
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 7, "c")
    expected = [Request(header, BEAT, len(ASKED)), Response(header, 4, BEATEN, len(ANSWERED))]
    assert said(("c", sides[0], framed(ASKED)), ("b", sides[1], framed(ANSWERED))) == expected
    assert said(("", sides[0], ASKED), ("", sides[1], ANSWERED), whole=True) == expected
    assert said(("", sides[0], framed(ASKED)), ("", sides[1], framed(ANSWERED)), whole=True) == expected


def test_frames_of_both_directions_may_be_cut_anywhere():
    asked = framed(ASKED, request(BEAT, ApiKey.HEARTBEAT, 0, 8))
    answered = framed(ANSWERED, response(BEATEN, ApiKey.HEARTBEAT, 0, 8))
    for cut in range(1, min(len(asked), len(answered))):
        got = said(
            ("c", Side.CLIENT, asked[:cut]),
            ("b", Side.BROKER, b""),
            ("c", Side.CLIENT, asked[cut:]),
            ("b", Side.BROKER, answered[:cut]),
            ("b", Side.BROKER, answered[cut:]),
        )
        assert [type(each) for each in got] == [Request, Request, Response, Response]


def test_a_version_no_broker_knows_is_answered_in_version_0():
    ask = request(ApiVersionsRequest(client_software_name="n", client_software_version="1"), 18, 4, 1)
    refusal = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),))
    _, answer = said(("", Side.CLIENT, ask), ("", Side.BROKER, response(refusal, 18, 0, 1)), whole=True)
    assert (answer.version, answer.body) == (0, refusal)


def test_a_produce_request_without_acks_has_no_response():
    produce = request(ProduceRequest(acks=0, timeout_ms=1, topic_data=()), ApiKey.PRODUCE, 3, 7)
    got = said(("", Side.CLIENT, produce), ("", Side.BROKER, response(BEATEN, ApiKey.HEARTBEAT, 0, 7)), whole=True)
    assert isinstance(got[1], Unknown)


def test_what_is_not_understood_says_why():
    (unknown,) = said(("", Side.BROKER, ANSWERED), whole=True)
    assert unknown == Unknown(ANSWERED, "no request with correlation id 7 waits for it")
    (unknown,) = said(("", Side.CLIENT, b"\x7f\xff" + ASKED[2:]), whole=True)
    assert unknown.reason == "unknown api key 32767"
    assert said(("c", Side.CLIENT, b"\xff" * 8), ("c", Side.CLIENT, framed(ASKED))) == [
        Unknown(b"\xff" * 8, "a frame of -1 bytes: the rest of what c sent is left out")
    ]
    assert said(("c", Side.CLIENT, framed(ASKED)[:-3])) == [
        Unknown(b"", f"c sent {len(ASKED) + 1} bytes of a frame, the rest was not recorded")
    ]
