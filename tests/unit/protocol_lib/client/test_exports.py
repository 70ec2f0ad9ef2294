"""The client's public face."""

import protocol_lib.client


def test_the_public_names():
    assert protocol_lib.client.__all__ == [
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
        "GroupDescription",
        "GroupListing",
        "KafkaError",
        "MemberDescription",
        "Node",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "Partition",
        "Producer",
        "RangeAssignor",
        "RebalanceListener",
        "RecordMetadata",
        "ResourceType",
        "RoundRobinAssignor",
        "SaslPlain",
        "SaslScram",
        "ScramMechanism",
        "SpecialTimestamp",
        "Topic",
        "TopicPartition",
    ]
    assert all(hasattr(protocol_lib.client, name) for name in protocol_lib.client.__all__)
