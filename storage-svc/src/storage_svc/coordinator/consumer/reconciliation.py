"""The steps of a member from its assignment to its target (KIP-848; Kafka: CurrentAssignmentBuilder). Pure.

    kept    = assigned and in the target          revoked = assigned and not in the target
    pending = in the target and not kept          free    = pending and held by no other

    STABLE, on the target's epoch                 nothing to do; after a new subscription, partitions outside it go
    the member still owns something revoked       UNREVOKED_PARTITIONS on its old epoch, with `kept`
    everything pending is free                    STABLE on the target's epoch, with kept + free
    something pending is not free                 UNRELEASED_PARTITIONS on the target's epoch, with kept + free

A member owns the partitions that its heartbeat lists; one without a list may own all it had.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from storage_svc.coordinator.consumer.member import ConsumerMember, Held, MemberState, Partitions


@dataclass(frozen=True, slots=True)
class Target:
    """The aim of a member's reconciliation. Topics it does not subscribe to any more are no part of it."""

    epoch: int
    partitions: Partitions
    subscribed: Set[bytes]


def reconciled(
    member: ConsumerMember,
    target: Target,
    owned: Partitions | None,
    is_taken: Callable[[bytes, int], bool],
    *,
    subscription_changed: bool,
) -> ConsumerMember:
    """Return the member after its next step, or the member itself when there is none now.

    Args:
        owned: the partitions that the member reports; None when it reports none.
        is_taken: whether another member holds a partition.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target.epoch:
                return _towards(member, target, owned, is_taken)
            return _without_unsubscribed(member, target, owned) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _owns(owned, member.revoking):
            return _without_unsubscribed(member, target, owned) if subscription_changed else member
        case _:
            return _towards(member, target, owned, is_taken)


def _owns(owned: Partitions | None, revoking: Held) -> bool:
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, ())) for topic_id, partitions in owned.items())


def _without_unsubscribed(member: ConsumerMember, target: Target, owned: Partitions | None) -> ConsumerMember:
    """Return the member without partitions that its new subscription does not cover."""
    assigned = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in target.subscribed}
    if len(assigned) == len(member.assigned):
        return member
    revoking = dict(member.revoking)
    for topic_id, held in member.assigned.items():
        if topic_id not in target.subscribed:
            revoking[topic_id] = {**revoking.get(topic_id, {}), **held}
    if _owns(owned, revoking):
        return member.moved(MemberState.UNREVOKED_PARTITIONS, member.epoch, assigned, revoking)
    return member.moved(member.state, member.epoch, assigned, member.revoking)


def _towards(
    member: ConsumerMember, target: Target, owned: Partitions | None, is_taken: Callable[[bytes, int], bool]
) -> ConsumerMember:
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    has_unreleased = False
    for topic_id in {**target.partitions, **member.assigned}:
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in target.subscribed else frozenset()
        held = member.assigned.get(topic_id, {})
        for partition, epoch in held.items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = epoch
        for partition in sorted(wanted - held.keys()):
            if is_taken(topic_id, partition):
                has_unreleased = True
            else:
                free.setdefault(topic_id, []).append(partition)
    if revoked and _owns(owned, revoked):
        return member.moved(MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoked)
    for topic_id, partitions in free.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return member.moved(state, target.epoch, kept, {})
