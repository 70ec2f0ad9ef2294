"""The Access service: access rules, quotas, and the stream by which gateways follow them and the users' revisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from broker_contract import access_pb2 as pb
from broker_contract.access import acl_of, binding_of, components_of, filter_of, quota_of
from broker_contract.acls import ACLS_MAX, Binding, Operation, ResourceType, fault
from broker_contract.quotas import CONTROLLER_MUTATION_RATE, ENTITIES_MAX, Entity, entity, entity_fault, value_fault
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.topics.access_rules import AccessRules
from storage_svc.topics.catalog_file import CatalogError
from storage_svc.topics.mutation_quotas import MutationQuotas

log = service_logs.get(__name__)

_DENIED, _ALLOWED, _NO_ROW = range(3)
#: Seconds for which a question is held while there are quotas: with each, a gateway's processes exchange their rates.
_EXCHANGE_S: Final = 0.5


class AccessService:
    def __init__(self, rules: AccessRules, partition_count: Callable[[str], int], default_partitions: int) -> None:
        """Serve these rules. `partition_count` returns the partitions of a topic, 0 if there is no such topic."""
        self._rules = rules
        self._mutation_quotas = MutationQuotas(rules.monotonic)
        self._partition_count = partition_count
        self._default_partitions = default_partitions

    async def create_acls(self, request: pb.CreateAclsRequest) -> pb.CreateAclsResponse:
        """Add rows; one that is there already is a success. They are in force when this returns."""
        rows = [binding_of(each) for each in request.acls]
        results = [
            pb.AclError(error_code=ErrorCode.INVALID_REQUEST if (why := fault(row)) else 0, message=why) for row in rows
        ]
        refused: set[Binding] = set()

        def choose() -> tuple[list[Binding], list[Binding]]:
            acls = self._rules.acls
            new = [row for row, result in zip(rows, results, strict=True) if not result.error_code and row not in acls]
            new = list(dict.fromkeys(new))
            room = max(0, ACLS_MAX - len(acls))
            refused.update(new[room:])
            return new[:room], []

        try:
            await self._rules.change_acls(choose)
        except CatalogError as error:
            log.error("cannot store access rules", reason=str(error))
            return pb.CreateAclsResponse(results=[each if each.error_code else _not_stored() for each in results])
        for row, result in zip(rows, results, strict=True):
            if row in refused:
                result.error_code = ErrorCode.POLICY_VIOLATION
                result.message = f"There are {ACLS_MAX} access rules already."
        return pb.CreateAclsResponse(results=results)

    async def describe_acls(self, request: pb.DescribeAclsRequest) -> pb.DescribeAclsResponse:
        """Return the rows that a filter matches."""
        (found,) = self._rules.matching([filter_of(request.filter)])
        return pb.DescribeAclsResponse(acls=map(acl_of, found))

    async def delete_acls(self, request: pb.DeleteAclsRequest) -> pb.DeleteAclsResponse:
        """Delete the rows that any filter matches; return those of each filter. It is in force when this returns."""
        filters = [filter_of(each) for each in request.filters]
        found: list[list[Binding]] = []

        def choose() -> tuple[list[Binding], list[Binding]]:
            found.extend(self._rules.matching(filters))
            return [], list(dict.fromkeys(row for rows in found for row in rows))

        try:
            await self._rules.change_acls(choose)
        except CatalogError as error:
            log.error("cannot delete access rules", reason=str(error))
            row = pb.DeletedAcls(error_code=ErrorCode.KAFKA_STORAGE_ERROR, message="The change could not be stored.")
            return pb.DeleteAclsResponse(results=[row] * len(filters))
        return pb.DeleteAclsResponse(
            results=[
                pb.DeletedAcls(error_code=ErrorCode.INVALID_REQUEST, message="Unknown filter.")
                if asked.is_unknown
                else pb.DeletedAcls(acls=map(acl_of, rows))
                for asked, rows in zip(filters, found, strict=True)
            ]
        )

    async def decide(self, request: pb.DecideRequest) -> pb.DecideResponse:
        """Decide by the rows alone: super users and the default are the caller's."""
        acls, decisions = self._rules.acls, []
        for action in request.actions:
            decided = acls.decide(
                request.principal, request.host, Operation(action.operation), ResourceType(action.type), action.name
            )
            decisions.append(_NO_ROW if decided is None else _ALLOWED if decided else _DENIED)
        return pb.DecideResponse(decisions=decisions)

    async def follow(self, request: pb.FollowRequest) -> pb.FollowResponse:
        """Return what the gateway lacks; if that is nothing, wait for it."""
        rules = self._rules
        await rules.note_lease(request.lease_ms)
        rules.follow(request.gateway, request.process, request.run, request.revision, request.lease_ms)
        if request.lease_ms > 0 and request.run == rules.run:
            wait_s = min(request.wait_ms / 1000, _EXCHANGE_S) if len(rules.quotas) else request.wait_ms / 1000
            await rules.next_change(request.gateway, request.process, request.revision, wait_s)
        change = rules.since(request.run, request.revision)
        return pb.FollowResponse(
            run=rules.run,
            revision=rules.revision,
            whole=change.whole,
            added=map(acl_of, change.added),
            removed=map(acl_of, change.removed),
            has_quotas=change.has_quotas,
            quotas=[quota_of(*each) for each in rules.quotas] if change.has_quotas else (),
            users=[pb.UserRevision(name=name, revision=number) for name, number in change.users.items()],
            users_revision=rules.users.latest,
            rates=self._exchanged(request),
            other_processes=rules.other_processes(request.gateway, request.process),
        )

    def _exchanged(self, request: pb.FollowRequest) -> list[pb.CountedRate]:
        rates = {
            (
                each.key,
                each.user if each.HasField("user") else None,
                each.client_id if each.HasField("client_id") else None,
            ): each.rate
            for each in request.rates
        }
        others = self._rules.exchange(request.gateway, request.process, rates)
        return [
            pb.CountedRate(key=key, user=user, client_id=client_id, rate=rate)
            for (key, user, client_id), rate in others.items()
        ]

    async def charge_mutations(self, request: pb.ChargeMutationsRequest) -> pb.ChargeMutationsResponse:
        """Count partitions that a client is about to make or delete, topic by topic, against its quota."""
        limit = self._rules.quotas.find(CONTROLLER_MUTATION_RATE, request.user, request.client_id)
        if limit is None:
            return pb.ChargeMutationsResponse(allowed=[True] * len(request.topics))
        counts = [self._mutations(each) for each in request.topics]
        allowed, throttle_s = self._mutation_quotas.charge(limit, counts, is_strict=request.is_strict)
        return pb.ChargeMutationsResponse(allowed=allowed, throttle_ms=math.ceil(throttle_s * 1000))

    def _mutations(self, topic: pb.TopicMutation) -> int:
        """Return how many partitions are made or deleted."""
        there = self._partition_count(topic.name)
        if topic.partitions == 0:
            return there
        wanted = topic.partitions if topic.partitions > 0 else self._default_partitions
        return max(0, wanted - there)

    async def alter_quotas(self, request: pb.AlterQuotasRequest) -> pb.AlterQuotasResponse:
        """Alter the quotas of entities, each for itself. They are in force when this returns."""
        named = [components_of(each.entity) for each in request.alterations]
        results = [_fault(*each) for each in zip(named, request.alterations, strict=True)]

        def choose() -> Mapping[Entity, Mapping[str, float]]:
            chosen: dict[Entity, dict[str, float]] = {}
            quotas = self._rules.quotas
            room = ENTITIES_MAX - len(quotas)
            for components, asked, result in zip(named, request.alterations, results, strict=True):
                if result.error_code or request.validate_only:
                    continue
                which = entity(components)
                values = dict(chosen.get(which, quotas.of(which)))
                for op in asked.ops:
                    if op.remove:
                        values.pop(op.key, None)
                    else:
                        values[op.key] = op.value
                if values and which not in chosen and not quotas.of(which):
                    if room <= 0:
                        result.error_code = ErrorCode.POLICY_VIOLATION
                        result.message = f"There are quotas of {ENTITIES_MAX} entities already."
                        continue
                    room -= 1
                chosen[which] = values
            return {which: values for which, values in chosen.items() if values != quotas.of(which)}

        try:
            await self._rules.change_quotas(choose)
        except CatalogError as error:
            log.error("cannot store quotas", reason=str(error))
            return pb.AlterQuotasResponse(results=[each if each.error_code else _not_stored() for each in results])
        return pb.AlterQuotasResponse(results=results)

    async def describe_quotas(self, _request: pb.DescribeQuotasRequest) -> pb.DescribeQuotasResponse:
        return pb.DescribeQuotasResponse(quotas=[quota_of(*each) for each in self._rules.quotas])


def _fault(components: list[tuple[str, str | None]], asked: pb.QuotaAlteration) -> pb.AclError:
    why = entity_fault(components)
    if not why:
        which = entity(components)
        why = next((why for op in asked.ops if (why := _op_fault(which, op))), "")
    return pb.AclError(error_code=ErrorCode.INVALID_REQUEST if why else 0, message=why)


def _op_fault(which: Entity, op: pb.QuotaOp) -> str:
    # A value that is removed may be any.
    return value_fault(which, op.key, 1.0 if op.remove else op.value)


def _not_stored() -> pb.AclError:
    return pb.AclError(error_code=ErrorCode.KAFKA_STORAGE_ERROR, message="The change could not be stored.")
