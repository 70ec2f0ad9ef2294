"""A batch that may be stored is never sent under another identity, which would store it twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from admin_api.kafka_connection import KafkaConnection
from aiokafka.protocol.produce import ProduceRequest

from tests.unit.admin_api.test_produce import offset_end, stream

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

REQUEST_TIMED_OUT, UNKNOWN_PRODUCER_ID = 7, 59


@pytest.mark.parametrize("first", ["no answer", REQUEST_TIMED_OUT])
def test_a_batch_in_doubt_whose_identity_is_lost(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, first: str | int
) -> None:
    name = "doubt-1" if first == "no answer" else "doubt-2"
    stack.create_topic(name, 1)
    exchange, codes = KafkaConnection.exchange, [UNKNOWN_PRODUCER_ID, first]

    async def failing(connection: KafkaConnection, request: Any) -> Any:
        answer = await exchange(connection, request)
        if not isinstance(request, ProduceRequest) or not codes:
            return answer
        code = codes.pop()
        if code == "no answer":
            raise TimeoutError
        answer.topics = [
            (topic, [(partition, code, *rest) for partition, _, *rest in rows]) for topic, rows in answer.topics
        ]
        return answer

    monkeypatch.setattr(KafkaConnection, "exchange", failing)
    (report,) = stream(stack, f"{stack.cluster}/topics/{name}", {"value": {"type": "JSON", "data": 1}})
    assert report["error_code"] != 200
    assert codes == []
    assert offset_end(stack, name, 0) == 1
    assert stream(stack, f"{stack.cluster}/topics/{name}", {})[0]["offset"] == 1
