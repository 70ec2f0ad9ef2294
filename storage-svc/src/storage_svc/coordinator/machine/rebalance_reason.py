"""The causes of a rebalance, by which `millrace_group_rebalances_total` counts them."""

from __future__ import annotations

from enum import StrEnum


class RebalanceReason(StrEnum):
    """A cause of one rebalance: of a classic group's join phase, or of a consumer group's next epoch."""

    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    #: A member's session or its time for SyncGroup or for giving up partitions was over, or the group is full.
    MEMBER_FAILED = "member_failed"
    #: The leader of a classic group has joined again, which asks for another assignment.
    LEADER_REJOINED = "leader_rejoined"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    #: A topic of a consumer group's subscription came, went or grew. The members of a classic group look themselves.
    TOPICS_CHANGED = "topics_changed"
    #: A consumer group became a classic one.
    PROTOCOL_CHANGED = "protocol_changed"
    #: The log refused the assignment.
    WRITE_FAILED = "write_failed"
    #: An event could not be handled, and the group begins again.
    RECOVERED = "recovered"
