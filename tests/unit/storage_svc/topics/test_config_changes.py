"""The configs of a topic after a change."""

from __future__ import annotations

import pytest
from storage_svc.topics.config_changes import ConfigChange, ConfigOperation, InvalidChangeError, changed, check_request
from storage_svc.topics.configs import TOPIC_CONFIGS, InvalidConfigError, check_configs

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
COMPACT = {"cleanup.policy": "compact"}
Change = tuple[str, int, str | None]


def after(own: dict[str, str], *changes: Change, replaces_all: bool = False) -> dict[str, str]:
    asked = [ConfigChange(*each) for each in changes]
    check_request(asked)
    return changed(own, asked, TOPIC_CONFIGS, check_configs, replaces_all=replaces_all)


@pytest.mark.parametrize(
    ("own", "changes", "expected"),
    [
        ({}, [("retention.ms", SET, "1000")], {"retention.ms": "1000"}),
        ({"retention.ms": "1"}, [("retention.ms", SET, " 1000 ")], {"retention.ms": "1000"}),
        ({"retention.ms": "1", "flush.ms": "5"}, [("retention.ms", DELETE, None)], {"flush.ms": "5"}),
        ({}, [("retention.ms", DELETE, None)], {}),
        ({"flush.ms": "5"}, [("unknown", DELETE, None)], {"flush.ms": "5"}),
        ({}, [("cleanup.policy", SET, "")], {"cleanup.policy": ""}),
        ({}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": ""}),
        ({"cleanup.policy": ""}, [("cleanup.policy", APPEND, "compact")], COMPACT),
        ({}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        (COMPACT, [("cleanup.policy", APPEND, "delete,compact")], {"cleanup.policy": "compact,delete"}),
        ({"cleanup.policy": "compact,delete"}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "compact"}),
        (COMPACT, [("cleanup.policy", SUBTRACT, "delete")], COMPACT),
        ({"retention.ms": "1"}, [("flush.ms", SET, "5")], {"retention.ms": "1", "flush.ms": "5"}),
    ],
)
def test_changes(own: dict[str, str], changes: list[Change], expected: dict[str, str]) -> None:
    assert after(own, *changes) == expected


def test_replacing_all_forgets_what_is_not_named() -> None:
    assert after({"retention.ms": "1"}, ("flush.ms", SET, "5"), replaces_all=True) == {"flush.ms": "5"}
    assert after({"retention.ms": "1"}, replaces_all=True) == {}


RETENTION = "retention.ms"
NOT_A_LIST = "Can't APPEND to key {} because its type is not LIST."
NULL = "Null value not supported for : retention.ms, flush.ms"
TOO_SMALL = "Invalid value '-2' for configuration retention.ms: it is not in -1..9223372036854775807"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ([(RETENTION, SET, "1"), (RETENTION, DELETE, None)], InvalidChangeError, "Error due to duplicate config keys"),
        ([(RETENTION, SET, None), ("flush.ms", APPEND, None)], InvalidChangeError, NULL),
        ([(RETENTION, 4, "1")], InvalidChangeError, "Unknown operation 4 for retention.ms."),
        ([("nonsense", SET, "1")], InvalidConfigError, "Unknown topic config name: nonsense"),
        ([("nonsense", APPEND, "1")], InvalidConfigError, NOT_A_LIST.format("nonsense")),
        ([(RETENTION, APPEND, "1")], InvalidConfigError, NOT_A_LIST.format(RETENTION)),
        ([(RETENTION, SET, "-2")], InvalidConfigError, TOO_SMALL),
    ],
)
def test_refusals(changes: list[Change], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        after({}, *changes)
    assert str(raised.value) == message
