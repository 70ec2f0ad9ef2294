"""The version of the contract, which both ends of a connection must share.

Services of two releases refuse each other for as long as a roll-out takes, unless their contracts are equal. A change
of a .proto file changes the version too. A change of the layout of frames, or of the meaning of a field, needs another
number here.
"""

from __future__ import annotations

import zlib
from typing import Final

from broker_contract import (
    access_pb2,
    administration_pb2,
    cluster_pb2,
    data_pb2,
    groups_pb2,
    logs_pb2,
    producers_pb2,
    topics_pb2,
    transactions_pb2,
    users_pb2,
)

#: The number of the frames' layout (frames.py) and of the meaning of fields.
_LAYOUT: Final = 3
# mutant: contract-version-whole
_MESSAGES: Final = b"".join(
    each.DESCRIPTOR.serialized_pb
    for each in (
        access_pb2,
        administration_pb2,
        cluster_pb2,
        data_pb2,
        groups_pb2,
        logs_pb2,
        producers_pb2,
        topics_pb2,
        transactions_pb2,
        users_pb2,
    )
)

#: Two versions are equal or do not fit; neither is newer.
CONTRACT_VERSION: Final = f"{_LAYOUT}.{zlib.crc32(_MESSAGES):08x}"
