"""DescribeCluster (60): the cluster's id, controller and brokers.

1 can describe controllers (KIP-919), 2 can include fenced brokers (KIP-1073).
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, message, struct, wire


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: Boolean
    #: 1 brokers, 2 controllers
    endpoint_type: Int8 = wire("1+", default=1)
    include_fenced_brokers: Boolean = wire("2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(default=None)
    is_fenced: Boolean = wire("2+", default=False)


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    #: 1 brokers, 2 controllers
    endpoint_type: Int8 = wire("1+", default=1)
    cluster_id: str
    controller_id: Int32 = wire(default=-1)
    brokers: tuple[DescribeClusterBroker, ...]
    cluster_authorized_operations: Int32 = wire(default=-(2**31))
