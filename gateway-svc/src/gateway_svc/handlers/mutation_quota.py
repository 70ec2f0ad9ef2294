"""The quota of partitions made and deleted (KIP-599), of CreateTopics, CreatePartitions and DeleteTopics.

Storage counts, since all gateways change the same topics. Versions whose clients know THROTTLING_QUOTA_EXCEEDED get it
for each topic that the quota leaves no room for. Others have their topics changed, and wait afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from broker_contract import access_pb2 as pb

from gateway_svc.requests.call import Call
from gateway_svc.requests.client_quotas import user_of
from gateway_svc.storage.protocols import Access

MESSAGE: Final = "The throttling quota has been exceeded."


async def over_quota(call: Call, access: Access, topics: Iterable[tuple[str, int]], *, strict_since: int) -> Set[str]:
    """Count the partitions of topics; return the names of those that must not be changed.

    Args:
        call: the request.
        access: counts.
        topics: name and partitions of each topic: -1 for the broker's default, 0 if it is deleted.
        strict_since: the first version whose clients know the error.
    """
    if not call.ring.throttles:
        return frozenset()
    asked = [pb.TopicMutation(name=name, partitions=partitions) for name, partitions in topics]
    answer = await access.charge_mutations(
        pb.ChargeMutationsRequest(
            user=user_of(call.subject.principal),
            client_id=call.client_id or "",
            topics=asked,
            is_strict=call.version >= strict_since,
        )
    )
    call.owed_s = answer.throttle_ms / 1000
    return {each.name for each, allowed in zip(asked, answer.allowed, strict=True) if not allowed}
