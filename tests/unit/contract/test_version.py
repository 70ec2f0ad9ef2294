"""The version that both ends of a connection must share."""

import re
import zlib

from broker_contract import cluster_pb2, data_pb2, groups_pb2, producers_pb2, topics_pb2
from broker_contract.version import CONTRACT_VERSION

#: The layout's number and a checksum of frames.py's and its parts' bytes, as the tests of frames write them down.
LAYOUT = 1


def test_the_version_follows_the_messages():
    messages = [
        each.DESCRIPTOR.serialized_pb for each in (cluster_pb2, data_pb2, groups_pb2, producers_pb2, topics_pb2)
    ]
    assert f"{LAYOUT}.{zlib.crc32(b''.join(messages)):08x}" == CONTRACT_VERSION
    assert re.fullmatch(r"\d+\.[0-9a-f]{8}", CONTRACT_VERSION)  # a word of a user agent
