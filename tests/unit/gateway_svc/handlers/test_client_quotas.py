"""The filters of DescribeClientQuotas are checked as Apache Kafka checks them, though there are no quotas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gateway_svc.handlers import client_quotas

from tests.wire.versions_of_security import FILTERS, quotas_answer, quotas_of


@pytest.mark.parametrize(("filters", "code", "message"), FILTERS)
def test_a_filter(filters: list[tuple[str, int, str | None]], code: int, message: str) -> None:
    answers: list[Any] = []
    call: Any = SimpleNamespace(answer=lambda response, error: answers.append((response, error)))
    client_quotas.describe(call, quotas_of(*filters), NotImplemented)
    assert answers == [(quotas_answer(code, message), code)]
