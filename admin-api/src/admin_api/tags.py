"""The groups of operations in the description of the API, in the order of the page /docs."""

from __future__ import annotations

TAGS = {
    "Cluster (v3)": "The one cluster. In a path, `-` names it as its id does.",
    "Broker (v3)": "Gateways that are up: they are the brokers that clients see.",
    "Configs (v3)": "Configurations of topics, of one broker, and of all brokers.",
    "Topic (v3)": "Topics: list, create, enlarge and delete.",
    "Partition (v3)": "Partitions of a topic, with their offsets and reassignments.",
    "Replica (v3)": "The one replica of each partition.",
    "Records (v3)": "Records that are produced over HTTP.",
    "Consumer Group (v3)": "Consumer groups with their members, assignments and lags.",
    "ACL (v3)": "Access control lists. Without `MILLRACE_AUTHORIZER=acl` nobody obeys them, and they are refused.",
    "Topics (api/v1)": "Topics with their sizes and rates; topics to create or delete together.",
    "Records (api/v1)": "Records to browse, search, download, follow and delete.",
    "Consumer groups (api/v1)": "Offsets of groups to reset, copy and delete.",
    "Transactions (api/v1)": "Transactions that are open, and the end of those that hang.",
    "Configs (api/v1)": "Configurations of topics, groups and brokers, with what they mean.",
    "Schemas (api/v1)": "Subjects of the schema registry, with their versions.",
    "Users (api/v1)": "Users with a password (SCRAM), for clients of Kafka and of this API.",
    "Quotas (api/v1)": "Quotas of users, client ids and addresses.",
    "Login (api/v1)": "The login of a person in a browser. Programs send the header Authorization instead.",
    "Cluster (api/v1)": "Health with reasons, ranges of metrics, segments, the version.",
}
