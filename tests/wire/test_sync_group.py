"""SyncGroup 5: a client that does not name the protocol is refused before anything else is looked at (KIP-559)."""

from __future__ import annotations

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.sync_group import SyncGroupRequest

from tests.wire.conftest import Running


@pytest.mark.parametrize(
    ("version", "protocol_type", "protocol_name", "expected"),
    [
        (5, None, None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (5, "consumer", None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (5, None, "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (5, "consumer", "range", ErrorCode.UNKNOWN_MEMBER_ID),
        (4, None, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_the_protocol_must_be_named(
    broker: Running, version: int, protocol_type: str | None, protocol_name: str | None, expected: ErrorCode
) -> None:
    wire = await broker.connect()
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="nobody",
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=(),
    )
    assert (await wire.call(14, version, request)).error_code == expected
    await wire.close()
