"""The filters of DescribeClientQuotas are checked as Apache Kafka checks them, before the quotas are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from broker_contract import access_pb2 as pb
from gateway_svc.handlers import client_quotas

from tests.wire.versions_of_security import FILTERS, quotas_answer, quotas_of


async def no_quotas(_request: pb.DescribeQuotasRequest) -> pb.DescribeQuotasResponse:
    return pb.DescribeQuotasResponse()


@pytest.mark.parametrize(("filters", "code", "message"), FILTERS)
async def test_a_filter(filters: list[tuple[str, int, str | None]], code: int, message: str) -> None:
    call: Any = SimpleNamespace(correlation_id=1)
    context: Any = SimpleNamespace(access=SimpleNamespace(describe_quotas=no_quotas))
    assert await client_quotas.describe(call, quotas_of(*filters), context) == (quotas_answer(code, message), code)
