"""The access rules that storage keeps: found, created and deleted. A change is in force when its call returns."""

from __future__ import annotations

from collections.abc import Sequence

from broker_contract import access_pb2 as pb
from broker_contract.access import acl_of, binding_of, filter_message
from broker_contract.acls import Binding, Filter, fault

from admin_api import errors
from admin_api.storage import StorageCalls


async def find(calls: StorageCalls, wanted: Filter) -> list[Binding]:
    """Return the rows that a filter matches, in the order of their values."""
    request = pb.DescribeAclsRequest(correlation_id=calls.correlation_id, filter=filter_message(wanted))
    answer = await calls.ask(lambda storage: storage.access.DescribeAcls, request)
    errors.check(answer.error_code)
    return [binding_of(row) for row in answer.acls]


async def create(calls: StorageCalls, rows: Sequence[Binding]) -> None:
    """Add rows. Raises ApiError if Kafka's rules refuse one, and then adds none."""
    for row in rows:
        if why := fault(row):
            raise errors.refused(why)
    request = pb.CreateAclsRequest(correlation_id=calls.correlation_id, acls=map(acl_of, rows))
    answer = await calls.change(lambda storage: storage.access.CreateAcls, request)
    for result in answer.results:
        errors.check(result.error_code, result.message)


async def delete(calls: StorageCalls, wanted: Filter) -> list[Binding]:
    """Delete the rows that a filter matches; return them."""
    request = pb.DeleteAclsRequest(correlation_id=calls.correlation_id, filters=[filter_message(wanted)])
    (result,) = (await calls.change(lambda storage: storage.access.DeleteAcls, request)).results
    errors.check(result.error_code, result.message)
    return [binding_of(row) for row in result.acls]
