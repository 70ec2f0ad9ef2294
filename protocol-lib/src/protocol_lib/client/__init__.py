"""An asyncio client on this package's own codec: producer, consumer, administrator, and single requests for records.

settings     ClientSettings: where the cluster is, TLS, SASL, time limits
producer     Producer: accumulator (batches per partition), sender (requests per leader), partitioner
fetch        the records of partitions at offsets of the caller's choice, over one connection
produce      batches for partitions of the caller's choice, over one connection
connection   one connection to one broker; cluster: all of them, metadata, routing, retries
errors       the exceptions that all of them raise, from KafkaError down
"""

from protocol_lib.client.accumulator import RecordMetadata
from protocol_lib.client.acl_admin import Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResource
from protocol_lib.client.admin import Admin
from protocol_lib.client.assignors import Assignor, RangeAssignor, RoundRobinAssignor
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.config_admin import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from protocol_lib.client.connection import Connection
from protocol_lib.client.consumer import Consumer
from protocol_lib.client.cooperative_sticky import CooperativeStickyAssignor
from protocol_lib.client.errors import BrokerError, KafkaError, ResponseTimeoutError, ResponseTooLargeError
from protocol_lib.client.fetch_state import ConsumerRecord
from protocol_lib.client.group_admin import GroupDescription, GroupListing, MemberDescription
from protocol_lib.client.group_offsets import OffsetAndMetadata
from protocol_lib.client.isolation import FetchedBatch
from protocol_lib.client.metadata import Node, Partition, Topic, TopicPartition
from protocol_lib.client.partition_fetch import FetchedPartition, fetch, find_large_batch
from protocol_lib.client.partition_produce import ProducedPartition, new_producer_id, produce
from protocol_lib.client.partitioner import Partitioner
from protocol_lib.client.producer import Producer
from protocol_lib.client.rebalancing import RebalanceListener
from protocol_lib.client.sasl import SaslBearer, SaslMechanism, SaslPlain, SaslScram
from protocol_lib.client.settings import Address, ClientSettings
from protocol_lib.client.topic_offsets import OffsetAndTimestamp
from protocol_lib.messages.list_offsets import SpecialTimestamp
from protocol_lib.scram import ScramMechanism

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "Address",
    "Admin",
    "Assignor",
    "BrokerError",
    "ClientSettings",
    "Cluster",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "Connection",
    "Consumer",
    "ConsumerRecord",
    "CooperativeStickyAssignor",
    "FetchedBatch",
    "FetchedPartition",
    "GroupDescription",
    "GroupListing",
    "KafkaError",
    "MemberDescription",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Partition",
    "Partitioner",
    "ProducedPartition",
    "Producer",
    "RangeAssignor",
    "RebalanceListener",
    "RecordMetadata",
    "ResourceType",
    "ResponseTimeoutError",
    "ResponseTooLargeError",
    "RoundRobinAssignor",
    "SaslBearer",
    "SaslMechanism",
    "SaslPlain",
    "SaslScram",
    "ScramMechanism",
    "SpecialTimestamp",
    "Topic",
    "TopicPartition",
    "fetch",
    "find_large_batch",
    "new_producer_id",
    "produce",
]
