"""An asyncio client on this package's own codec: producer, consumer, administrator.

settings     ClientSettings: where the cluster is, TLS, SASL, time limits
producer     Producer: accumulator (batches per partition), sender (requests per leader), partitioner
connection   one connection to one broker; cluster: all of them, metadata, routing, retries
errors       what all of them raise, from KafkaError down
"""

from protocol_lib.client.accumulator import RecordMetadata
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import BrokerError, KafkaError
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.client.producer import Producer
from protocol_lib.client.sasl import SaslPlain
from protocol_lib.client.settings import Address, ClientSettings

__all__ = [
    "Address",
    "BrokerError",
    "ClientSettings",
    "Cluster",
    "Connection",
    "KafkaError",
    "Producer",
    "RecordMetadata",
    "SaslPlain",
    "TopicPartition",
]
